"""ernie4_5_moe: a traditional rope, routed layers between two indices at an interval, scores in float32 to the sum."""

from collections.abc import Callable

from engine.graph.families.common import ArchSpec, Config, Drop, RouterSpec, plain_rope, stacked

UNREAD = Drop((r"mtp_(block|linear_proj|hidden_norm|emb_norm)\.", "e_score_correction_bias"))


def _edge(config: Config, key: str, default: int, pick: Callable[[list[int]], int]) -> int:
    """One index of a layer, of several (text and vision experts in the original)."""
    value = config.read(key, default)
    several = value if isinstance(value, (list, tuple)) else [value]
    if not several or not all(isinstance(v, int) for v in several):
        raise config.invalid(key, value, "an integer or a list of integers")
    return pick(list(several))


def spec(config: Config) -> ArchSpec:
    bias, head_dim = config.flag("use_bias"), config.count("head_dim", 0) or config.even_head_dim()
    rope = plain_rope(head_dim, config.number("rope_theta"), traditional=True)
    softmax = config.choice("moe_gate_act", ("softmax", "sigmoid"), "softmax") == "softmax"
    router = RouterSpec(score="softmax_float32" if softmax else "sigmoid_float32", normalise="max", eps=1e-12)
    names = {"experts": "moe_num_experts", "shared": "moe_num_shared_experts"}
    hidden = config.count("moe_intermediate_size", 0) or config.positive("intermediate_size")
    sparse = config.moe(router, **names, top_k=config.positive("moe_k", 1), hidden=hidden, bias=bias, cast=True)
    every, last = config.positive("moe_layer_interval", 1), config.positive("num_hidden_layers") - 1
    first = _edge(config, "moe_layer_start_index", 0, min)
    last = _edge(config, "moe_layer_end_index", last, max)
    return config.decoder(
        config.attention(head_dim=head_dim, rope=rope, bias=bias),
        lambda i: sparse if (i + 1) % every == 0 and first <= i <= last else config.mlp(bias=bias),
        tied=config.tied(),
        more_rules=(UNREAD, *stacked("mlp", "switch_mlp")),
    )
