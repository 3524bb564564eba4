"""gemma: norms that store w for 1 + w, exact GELU, scaled embedding, tied head."""

from engine.graph.families.common import Config, arch, attention, mlp, plain_rope, rms, rope_base
from engine.graph.spec import ArchSpec, LayerSpec, Norms, StemSpec


def spec(config: Config) -> ArchSpec:
    head_dim, traditional = config.positive("head_dim"), config.flag("rope_traditional", False)
    rope = plain_rope(head_dim, rope_base(config, 10000.0), traditional)
    before = Norms(pre_attn=rms(config, "input_layernorm", 1.0), pre_mlp=rms(config, "post_attention_layernorm", 1.0))
    return arch(
        config,
        LayerSpec(attention=attention(config, head_dim=head_dim, rope=rope), mlp=mlp(config, act="gelu"), norms=before),
        tied=True,
        norm=rms(config, "model.norm", 1.0),
        stem=StemSpec(scale=config.positive("hidden_size") ** 0.5),
        rules=(),
    )
