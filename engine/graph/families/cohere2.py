"""cohere2: cohere without norms on heads; every n-th layer is global and has no rope; float16 attends in float32."""

from engine.graph.families.common import DEFAULTS, Config, arch, attention, layer_norm, mlp, plain_rope, sliding
from engine.graph.spec import ArchSpec, HeadSpec, LayerSpec, Norms


def spec(config: Config) -> ArchSpec:
    config = config.defaulted(DEFAULTS["cohere2"])
    head_dim, eps = config.positive("head_dim"), config.number("layer_norm_eps")
    bias, norm_bias = config.flag("attention_bias", False), config.flag("layer_norm_bias", False)

    def layer(local: bool) -> LayerSpec:
        attn = attention(
            config,
            rope=plain_rope(head_dim, config.number("rope_theta"), traditional=True) if local else None,
            qkv_bias=bias,
            out_bias=bias,
            float32="float16",
            **(sliding(config) if local else {}),
        )
        norms = Norms(pre_attn=layer_norm("input_layernorm", eps, norm_bias))
        return LayerSpec(attention=attn, mlp=mlp(config), norms=norms, flow="parallel")

    made, pattern = {local: layer(local) for local in (True, False)}, config.positive("sliding_window_pattern")
    return arch(
        config,
        [made[(i + 1) % pattern != 0] for i in range(config.positive("num_hidden_layers"))],
        tied=True,
        norm=layer_norm("model.norm", eps, norm_bias),
        head=HeadSpec(tied=True, multiply=config.number("logit_scale")),
    )
