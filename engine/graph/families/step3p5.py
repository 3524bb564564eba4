"""step3p5: heads, rope and clipping per layer, norms on query and key heads, a sigmoid gate per head, sigmoid routing
with a bias in the ranking; the original stores norms as w for 1 + w."""

import re
from typing import Any

from engine.errors import InvalidValue
from engine.graph.families.common import DEFAULTS, Config
from engine.graph.renames import Change, Drop, Rename
from engine.graph.spec import ArchSpec, AttentionSpec, GateSpec, MlpSpec, MoeSpec, RouterSpec

_ORIGINAL = r"\.moe\.(gate_proj|up_proj|down_proj|gate|router_bias)\b|(?<!\.mlp)\.share_expert\."
_LISTS = ("rope_theta", "partial_rotary_factors", "swiglu_limits", "swiglu_limits_shared")


def _clipped(config: Config, key: str, hidden: str) -> MlpSpec:
    limit = config.number(key, 0.0, zero=True)
    return config.mlp(hidden=config.positive(hidden), **({"act": "swiglu_clamped", "limit": limit} if limit else {}))


def _attention(config: Config, window: dict[str, Any]) -> AttentionSpec:
    """`config`: of one layer."""
    local = config.inner("attention_other_setting") if window and config.get("attention_other_setting") else config
    kind = "sliding_attention" if window and config.get("layer_types") else "full_attention"
    only = config.holding("yarn_only_types", list, [])
    dims = int(config.positive("head_dim") * config.number("partial_rotary_factors", 1.0))
    return config.attention(
        heads=local.positive("num_attention_heads"),
        kv_heads=local.positive("num_attention_groups"),
        rope=(config if not only or kind in only else config.replaced(rope_scaling=None)).rope(dims),
        qk_norm=config.qk_heads(),
        gate=GateSpec(key="g_proj", per_head=True) if config.flag("use_head_wise_attn_gate", True) else None,
        **window,
    )


def spec(config: Config) -> ArchSpec:
    config = config.defaulted(DEFAULTS["step3p5"])
    count = config.positive("num_hidden_layers")
    if isinstance(config.get("rope_theta"), list):
        config.each("rope_theta")
    sparse = set(range(1, count))
    if named := config.read("moe_layers_enum", ""):
        if not isinstance(named, str) or not re.fullmatch(r"\s*\d+(\s*,\s*\d+)*\s*", named):
            raise InvalidValue("config.json moe_layers_enum", named, "layer numbers with commas between them")
        sparse = {int(i) for i in named.split(",")}
    router = RouterSpec(
        key="gate.gate",
        score="sigmoid_float32",
        correction="gate.router_bias",
        normalise="sum" if config.flag("norm_expert_weight", True) else None,
        eps=1e-20,
        scale=config.number("moe_router_scaling_factor"),
        compiled=True,
    )

    def feed(i: int) -> MlpSpec | MoeSpec:
        here = config.of_layer(i, *_LISTS)
        if i not in sparse:
            return _clipped(here, "swiglu_limits_shared", "intermediate_size")
        return config.moe(
            router,
            experts="moe_num_experts",
            top_k="moe_top_k",
            cast=True,
            expert=_clipped(here, "swiglu_limits", "moe_intermediate_size"),
            shared=_clipped(here, "swiglu_limits_shared", "share_expert_dim"),
            shared_at="share_expert",
        )

    windows = config.window_layers([("sliding_attention", "full_attention")[i % 2] for i in range(count)])
    made = config.layers(lambda i: _attention(config.of_layer(i, *_LISTS), windows[i]), feed)
    kept = "|".join(map(str, range(count)))
    rules = (
        Drop((r"\.mtp", rf"model\.layers\.(?!(?:{kept})\.)\d+\.")),
        Change(r"norm.*\.weight$", lambda w: w + 1, only_if=_ORIGINAL),
        Rename(r"\.moe\.(gate_proj|up_proj|down_proj)\.", r".mlp.switch_mlp.\1."),
        Rename(r"\.moe\.gate\.", ".mlp.gate.gate."),
        Rename(r"\.moe\.router_bias", ".mlp.gate.router_bias"),
        Rename(r"(?<!\.mlp)\.share_expert\.", ".mlp.share_expert."),
    )
    return config.arch(made, tied=False, more_rules=rules)
