"""minicpm: llama with factors on the embedding, both residual branches and the hidden states before an untied head."""

from engine.graph.families.common import Config
from engine.graph.renames import UNTIE
from engine.graph.spec import ArchSpec, HeadSpec, LayerSpec, StemSpec


def spec(config: Config) -> ArchSpec:
    head_dim, tied = config.even_head_dim(), config.flag("tie_word_embeddings", False)
    layer = LayerSpec(
        attention=config.attention(head_dim=head_dim, rope=config.rope(head_dim, 1000000.0)),
        mlp=config.mlp(),
        norms=config.pre_norms(),
        residual_scale=config.number("scale_depth") / config.positive("num_hidden_layers") ** 0.5,
    )
    shrink = config.positive("hidden_size") / config.number("dim_model_base")
    return config.arch(
        layer,
        stem=StemSpec(scale=config.number("scale_emb")),
        head=HeadSpec(tied=True) if tied else HeadSpec(tied="absent", divide_hidden=shrink),
        rules=(UNTIE,) if tied else (),
    )
