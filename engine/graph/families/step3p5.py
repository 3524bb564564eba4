"""step3p5: heads, rope and clipping per layer, norms on query and key heads, a sigmoid gate per head, sigmoid routing
with a bias in the ranking; the original stores norms as w for 1 + w."""

import re
from typing import Any

from engine.graph.families.common import ArchSpec, AttentionSpec, Config, GateSpec, MlpSpec, MoeSpec, RouterSpec
from engine.graph.renames import Change, Drop, Rename

_ORIGINAL = r"\.moe\.(gate_proj|up_proj|down_proj|gate|router_bias)\b|(?<!\.mlp)\.share_expert\."
_LISTS = ("rope_theta", "partial_rotary_factors", "swiglu_limits", "swiglu_limits_shared")
_RULES = (
    Change(r"norm.*\.weight$", lambda w: w + 1, only_if=_ORIGINAL),
    Rename(r"\.moe\.(gate_proj|up_proj|down_proj)\.", r".mlp.switch_mlp.\1."),
    Rename(r"\.moe\.gate\.", ".mlp.gate.gate."),
    Rename(r"\.moe\.router_bias", ".mlp.gate.router_bias"),
    Rename(r"(?<!\.mlp)\.share_expert\.", ".mlp.share_expert."),
)


def _clipped(config: Config, key: str, hidden: str) -> MlpSpec:
    limit = config.number(key, 0.0, zero=True)
    return config.mlp(hidden=config.positive(hidden), **({"act": "swiglu_clamped", "limit": limit} if limit else {}))


def _attention(config: Config, window: dict[str, Any]) -> AttentionSpec:
    """`config`: of one layer."""
    local = config.inner("attention_other_setting") if window and config.get("attention_other_setting") else config
    kind = "sliding_attention" if window and config.get("layer_types") else "full_attention"
    only = config.holding("yarn_only_types", list, [])
    dims = int(config.positive("head_dim") * config.number("partial_rotary_factors", 1.0))
    rope = (config if not only or kind in only else config.replaced(rope_scaling=None)).rope(dims)
    heads, kv_heads = local.positive("num_attention_heads"), local.positive("num_attention_groups")
    gate = GateSpec(key="g_proj", per_head=True) if config.flag("use_head_wise_attn_gate", True) else None
    return config.attention(heads=heads, kv_heads=kv_heads, rope=rope, qk_norm=config.qk_heads(), gate=gate, **window)


def _sparse(config: Config) -> set[int]:
    """The layers with a mixture: all but the first where moe_layers_enum is silent."""
    if not (named := config.read("moe_layers_enum", "")):
        return set(range(1, config.positive("num_hidden_layers")))
    if not isinstance(named, str) or not re.fullmatch(r"\s*\d+(\s*,\s*\d+)*\s*", named):
        raise config.invalid("moe_layers_enum", named, "layer numbers with commas between them")
    return {int(i) for i in named.split(",")}


def spec(config: Config) -> ArchSpec:
    if isinstance(config.get("rope_theta"), list):
        config.each("rope_theta")
    sparse = _sparse(config)
    weighed: dict[str, Any] = {"normalise": config.to_sum("norm_expert_weight", True), "eps": 1e-20}
    weighed |= {"scale": config.number("moe_router_scaling_factor"), "compiled": True}
    router = RouterSpec(key="gate.gate", score="sigmoid_float32", correction="gate.router_bias", **weighed)

    def feed(i: int) -> MlpSpec | MoeSpec:
        here = config.of_layer(i, *_LISTS)
        if i not in sparse:
            return _clipped(here, "swiglu_limits_shared", "intermediate_size")
        beside = {"shared": _clipped(here, "swiglu_limits_shared", "share_expert_dim"), "shared_at": "share_expert"}
        expert = _clipped(here, "swiglu_limits", "moe_intermediate_size")
        return config.moe(router, experts="moe_num_experts", top_k="moe_top_k", cast=True, expert=expert, **beside)

    windows = config.window_layers(config.full_every(2))
    kept = "|".join(map(str, range(len(windows))))
    attn = [_attention(config.of_layer(i, *_LISTS), window) for i, window in enumerate(windows)]
    drop = Drop((r"\.mtp", rf"model\.layers\.(?!(?:{kept})\.)\d+\."))
    return config.decoder(attn, feed, tied=False, more_rules=(drop, *_RULES))
