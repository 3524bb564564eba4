"""step3p5: heads, rope and clipping per layer, norms on query and key heads, a sigmoid gate per head, sigmoid routing
with a bias in the ranking; the original stores norms as w for 1 + w."""

from __future__ import annotations

from typing import Any

from engine.errors import InvalidValue
from engine.graph.families.common import Config, arch, attention, mlp, pre_norms, qk_heads, window_layers
from engine.graph.renames import ROTARY, Change, Drop, Rename
from engine.graph.spec import ArchSpec, AttentionSpec, GateSpec, LayerSpec, MlpSpec, MoeSpec, RopeSpec, RouterSpec

_ORIGINAL = r"\.moe\.(gate_proj|up_proj|down_proj|gate|router_bias)\b|(?<!\.mlp)\.share_expert\."


def _of_layer(config: Config, key: str, layer: int, default: float) -> float:
    """Entry `layer` of an optional list that may be shorter than the model."""
    values = config.read(key, [])
    if not isinstance(values, list):
        raise InvalidValue(f"config.json {key}", values, "a list of numbers, or null")
    return (values[layer] or default) if layer < len(values) else default


def _clipped(config: Config, key: str, layer: int, hidden: int) -> MlpSpec:
    limit = _of_layer(config, key, layer, 0.0)
    return mlp(config, hidden=hidden, **({"act": "swiglu_clamped", "limit": limit} if limit > 0 else {}))


def _attention(config: Config, i: int, window: dict[str, Any]) -> AttentionSpec:
    local = config.inner("attention_other_setting") if window and config.get("attention_other_setting") else config
    theta = config.read("rope_theta", 10000.0)
    kind = "full_attention"
    if window and config.get("layer_types"):
        kind = "sliding_attention"
    only = config.read("yarn_only_types", [])
    head_dim = config.positive("head_dim")
    return attention(
        config,
        heads=local.positive("num_attention_heads"),
        kv_heads=local.positive("num_attention_groups"),
        rope=RopeSpec(
            dims=int(head_dim * _of_layer(config, "partial_rotary_factors", i, 1.0)),
            base=theta[i] if isinstance(theta, list) else config.number("rope_theta", 10000.0),
            scaling={} if only and kind not in only else config.read("rope_scaling", {}),
            max_positions=config.positive("max_position_embeddings", 262144),
        ),
        qk_norm=qk_heads(config),
        gate=GateSpec(key="g_proj", per_head=True) if config.flag("use_head_wise_attn_gate", True) else None,
        **window,
    )


def spec(config: Config) -> ArchSpec:
    config = config.defaulted({"rms_norm_eps": 1e-5, "sliding_window": 512})
    count = config.positive("num_hidden_layers")
    named = config.read("moe_layers_enum", "") or ",".join(map(str, range(1, count)))
    sparse = {int(i) for i in named.strip().split(",") if i}
    router = RouterSpec(
        key="gate.gate",
        score="sigmoid_float32",
        correction="gate.router_bias",
        normalise="sum" if config.flag("norm_expert_weight", True) else None,
        eps=1e-20,
        scale=config.number("moe_router_scaling_factor", 3.0),
        compiled=True,
    )

    def feed(i: int) -> MlpSpec | MoeSpec:
        if i not in sparse:
            return _clipped(config, "swiglu_limits_shared", i, config.positive("intermediate_size"))
        return MoeSpec(
            experts=config.positive("moe_num_experts", 288),
            top_k=config.positive("moe_top_k", 8),
            router=router,
            expert=_clipped(config, "swiglu_limits", i, config.positive("moe_intermediate_size", 1280)),
            cast=True,
            shared=_clipped(config, "swiglu_limits_shared", i, config.positive("share_expert_dim", 1280)),
            shared_at="share_expert",
        )

    alternating = [("sliding_attention", "full_attention")[i % 2] for i in range(count)]
    layers = [
        LayerSpec(attention=_attention(config, i, window), mlp=feed(i), norms=pre_norms(config))
        for i, window in enumerate(window_layers(config, alternating))
    ]
    kept = "|".join(map(str, range(count)))
    rules = (
        ROTARY,
        Drop((r"\.mtp", rf"model\.layers\.(?!(?:{kept})\.)\d+\.")),
        Change(r"norm.*\.weight$", lambda w: w + 1, only_if=_ORIGINAL),
        Rename(r"\.moe\.(gate_proj|up_proj|down_proj)\.", r".mlp.switch_mlp.\1."),
        Rename(r"\.moe\.gate\.", ".mlp.gate.gate."),
        Rename(r"\.moe\.router_bias", ".mlp.gate.router_bias"),
        Rename(r"(?<!\.mlp)\.share_expert\.", ".mlp.share_expert."),
    )
    return arch(config, layers, tied=False, rules=rules)
