"""nemotron_h: layers of one mixer each, by a pattern: state spaces (M), attention without positions (*), MLPs of relu
squared (-) and mixtures of them (E)."""

from typing import Any

from engine.graph.families.common import Config
from engine.graph.families.glm4_moe import grouped_router
from engine.graph.families.mamba2 import by_kind, limits, ssm
from engine.graph.renames import FILTERS, Drop, stacked
from engine.graph.spec import ArchSpec, InnerSpec, LayerSpec, MlpSpec, Norms, NormSpec, StemSpec

KINDS = {
    "linear_attention": "M",
    "mamba": "M",
    "conv": "M",
    "full_attention": "*",
    "attention": "*",
    "mlp": "-",
    "moe": "E",
}


def _norm(config: Config, key: str) -> NormSpec:
    return config.rms(key, eps=config.number("layer_norm_epsilon"))


def _mamba(config: Config) -> Any:
    config.choice("mamba_hidden_act", ("silu",), "silu")
    bias = config.flag("mamba_proj_bias")
    return ssm(
        config,
        *("mamba_num_heads", "mamba_head_dim", "ssm_state_size", "n_groups"),
        width=config.positive("conv_kernel"),
        conv_bias=config.flag("use_conv_bias"),
        in_bias=bias,
        out_bias=bias,
        limits=limits(config, (0.0, float("inf"))),
        cast_skip=True,
        norm=_norm(config, "norm"),
        norm_groups=config.positive("n_groups"),
    )


def _attention(config: Config) -> Any:
    return config.attention(rope=None, bias=config.flag("attention_bias"))


def _mlp(config: Config, width: str = "intermediate_size", **changes: Any) -> MlpSpec:
    config.choice("mlp_hidden_act", ("relu2",), "relu2")
    bias = config.flag("mlp_bias")
    return MlpSpec(**{"hidden": config.positive(width), "act": "relu2", "gate": None, "bias": bias, **changes})


def _moe(config: Config) -> Any:
    inner = shared = None
    if config.get("moe_latent_size") is not None:
        dim, bias = config.positive("moe_latent_size"), config.flag("mlp_bias")
        inner = InnerSpec(dim=dim, down="fc1_latent_proj", up="fc2_latent_proj", bias=bias)
    if config.count("n_shared_experts", 0):
        shared = _mlp(config, "moe_shared_expert_intermediate_size")
    return config.moe(
        grouped_router(config),
        experts="n_routed_experts",
        expert=_mlp(config, "moe_intermediate_size", up="fc1", down="fc2", bias=False),
        cast=True,
        shared=shared,
        inner=inner,
    )


def _pattern(config: Config) -> list[str]:
    """A letter a layer, from either spelling."""
    pattern = config.get("hybrid_override_pattern")
    if isinstance(pattern, (str, list)) and pattern:
        return list(pattern)
    if pattern is not None:
        raise config.invalid("hybrid_override_pattern", pattern, "letters, one per layer")
    key = "layers_block_type" if config.get("layers_block_type") else "layer_types"
    kinds = config.holding(key, list)
    for kind in kinds:
        if not isinstance(kind, str) or kind not in KINDS:
            raise config.invalid(key, kind, KINDS)
    return [KINDS[kind] for kind in kinds]


def spec(config: Config) -> ArchSpec:
    letters = _pattern(config)
    build = {"M": _mamba, "*": _attention, "-": _mlp, "E": _moe}
    norm, layers = _norm(config, "norm"), []
    for letter, mixer in zip(letters, by_kind(config, "hybrid_override_pattern", letters, build), strict=True):
        if letter in "M*":
            layers.append(LayerSpec(attention=mixer, mlp=None, norms=Norms(pre_attn=norm), attn_key="mixer"))
        else:
            layers.append(LayerSpec(attention=None, mlp=mixer, norms=Norms(pre_mlp=norm), mlp_key="mixer"))
    return config.arch(
        layers,
        tied=False,
        stem=StemSpec(key="backbone.embeddings"),
        layers_key="backbone.layers",
        norm=_norm(config, "backbone.norm_f"),
        more_rules=(
            Drop((r"^mtp\.",)),
            FILTERS,
            *stacked("mixer", "switch_mlp", {"up_proj": "fc1", "down_proj": "fc2"}),
        ),
    )
