"""nemotron: layer norms that store w for 1 + w, a rope on part of a head, relu squared without a gate."""

from engine.errors import InvalidValue
from engine.graph.families.common import Config, arch, attention, mlp
from engine.graph.spec import ArchSpec, HeadSpec, LayerSpec, Norms, NormSpec, RopeSpec


def _rope(config: Config, dims: int) -> RopeSpec:
    """Only linear scaling is known; mlx-lm reads its name under "type" alone and dies where it is "rope_type"."""
    scaling = config.read("rope_scaling", {})
    kind = scaling.get("type") or scaling.get("rope_type")
    if scaling and kind != "linear":
        raise InvalidValue("config.json rope_scaling type", kind, ("linear",))
    return RopeSpec(dims=dims, base=config.number("rope_theta", 10000.0), scaling=scaling)


def spec(config: Config) -> ArchSpec:
    def norm(key: str) -> NormSpec:
        return NormSpec(key=key, eps=config.number("norm_eps"), kind="layer", bias=True, offset=1.0)

    dim, heads = config.positive("hidden_size"), config.positive("num_attention_heads")
    head_dim, bias = config.positive("head_dim", dim // heads), config.flag("attention_bias", False)
    layer = LayerSpec(
        attention=attention(
            config,
            head_dim=head_dim,
            rope=_rope(config, int(config.number("partial_rotary_factor", 0.5) * head_dim)),
            qkv_bias=bias,
            out_bias=bias,
        ),
        mlp=mlp(config, act="relu_squared", gate=None, bias=config.flag("mlp_bias", False)),
        norms=Norms(pre_attn=norm("input_layernorm"), pre_mlp=norm("post_attention_layernorm")),
    )
    head = HeadSpec(tied=config.flag("tie_word_embeddings", False))
    return arch(config, layer, tied=head.tied is True, norm=norm("model.norm"), head=head)
