"""granite: llama with factors on the embedding, the attention scores, both residual branches and the logits."""

from engine.graph.families.common import Config, arch, attention, even_head_dim, mlp, pre_norms, rope
from engine.graph.renames import UNTIE
from engine.graph.spec import ArchSpec, HeadSpec, LayerSpec, StemSpec


def spec(config: Config) -> ArchSpec:
    head_dim, bias = even_head_dim(config), config.flag("attention_bias")
    layer = LayerSpec(
        attention=attention(
            config,
            head_dim=head_dim,
            rope=rope(config.replaced(rope_traditional=False), head_dim, None),
            scale=config.number("attention_multiplier"),
            qkv_bias=bias,
            out_bias=bias,
        ),
        mlp=mlp(config, bias=config.flag("mlp_bias")),
        norms=pre_norms(config),
        residual_scale=config.number("residual_multiplier"),
    )
    head = HeadSpec(tied=config.flag("tie_word_embeddings", True), divide=config.number("logits_scaling"))
    stem = StemSpec(scale=config.number("embedding_multiplier"))
    return arch(config, layer, head=head, stem=stem, rules=(UNTIE,) if head.tied else ())
