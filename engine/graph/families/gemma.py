"""gemma: norms that store w for 1 + w, exact GELU, scaled embedding, tied head."""

from engine.graph.families.common import Config, plain_rope
from engine.graph.spec import ArchSpec, LayerSpec, Norms, StemSpec


def spec(config: Config) -> ArchSpec:
    head_dim, traditional = config.positive("head_dim"), config.flag("rope_traditional", False)
    rope = plain_rope(head_dim, config.rope_base(10000.0), traditional)
    before = Norms(pre_attn=config.rms("input_layernorm", 1.0), pre_mlp=config.rms("post_attention_layernorm", 1.0))
    return config.arch(
        LayerSpec(attention=config.attention(head_dim=head_dim, rope=rope), mlp=config.mlp(act="gelu"), norms=before),
        tied=True,
        norm=config.rms("model.norm", 1.0),
        stem=StemSpec(scale=config.positive("hidden_size") ** 0.5),
        rules=(),
    )
