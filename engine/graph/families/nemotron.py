"""nemotron: layer norms that store w for 1 + w, a rope on part of a head, relu squared without a gate."""

from dataclasses import replace

from engine.graph.families.common import ArchSpec, Config, Norms, NormSpec, RopeSpec


def _rope(config: Config, dims: int) -> RopeSpec:
    """Only linear scaling is known (register: "linear-rope-refused")."""
    scaling = config.holding("rope_scaling", dict, {})
    kind = scaling.get("type") or scaling.get("rope_type")
    if scaling and kind != "linear":
        raise config.invalid("rope_scaling type", kind, ("linear",))
    return RopeSpec(dims=dims, base=config.number("rope_theta", 10000.0), scaling=scaling)


def spec(config: Config) -> ArchSpec:
    def norm(key: str) -> NormSpec:
        return NormSpec(key=key, eps=config.number("norm_eps"), kind="layer", bias=True, offset=1.0)

    attn = config.attention(rope=None, bias=config.flag("attention_bias", False))
    rope = _rope(config, int(config.number("partial_rotary_factor", 0.5) * attn.head_dim))
    feed = config.mlp(act="relu_squared", gate=None, bias=config.flag("mlp_bias", False))
    norms = Norms(pre_attn=norm("input_layernorm"), pre_mlp=norm("post_attention_layernorm"))
    return config.decoder(replace(attn, rope=rope), feed, norms=norms, tied=config.tied(False), norm=norm("model.norm"))
