"""granite: llama with factors on the embedding, the attention scores, both residual branches and the logits."""

from engine.graph.families.common import Config
from engine.graph.renames import UNTIE
from engine.graph.spec import ArchSpec, HeadSpec, LayerSpec, StemSpec


def spec(config: Config) -> ArchSpec:
    head_dim, bias = config.even_head_dim(), config.flag("attention_bias")
    layer = LayerSpec(
        attention=config.attention(
            head_dim=head_dim,
            rope=config.replaced(rope_traditional=False).rope(head_dim, None),
            scale=config.number("attention_multiplier"),
            qkv_bias=bias,
            out_bias=bias,
        ),
        mlp=config.mlp(bias=config.flag("mlp_bias")),
        norms=config.pre_norms(),
        residual_scale=config.number("residual_multiplier"),
    )
    head = HeadSpec(tied=config.flag("tie_word_embeddings", True), divide=config.number("logits_scaling"))
    stem = StemSpec(scale=config.number("embedding_multiplier"))
    return config.arch(layer, head=head, stem=stem, rules=(UNTIE,) if head.tied else ())
