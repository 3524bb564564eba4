"""bailing_moe_linear: lightning attention, and bailing_moe's own in every layer_group_size-th layer and in those that
fill no group; routing from the front."""

from typing import Any

from engine.graph.families.bailing_moe import arch, mixture, projections
from engine.graph.families.common import ArchSpec, AttentionSpec, Config
from engine.graph.lightning import LightningSpec


def mixers(config: Config, full: Any, linear: AttentionSpec, first: int, blocks: bool) -> list[Any]:
    """`full` attention where a group of layers ends, lightning attention elsewhere, whose slopes fall from layer
    `first` to the last one."""
    size, count, groups = (config.positive(k) for k in ("layer_group_size", "num_hidden_layers", "group_norm_size"))
    if linear.heads * linear.head_dim % groups:
        raise config.invalid("group_norm_size", groups, f"a divisor of {linear.heads * linear.head_dim}")
    fields: dict[str, Any] = {"attention": linear, "groups": groups, "eps": config.number("rms_norm_eps")}
    factors = [1 - max(0, i - first) / max(1, count - 1) + 1e-5 for i in range(count)]
    lightning = [LightningSpec(factor=factor, blocks=blocks, plain=not blocks, **fields) for factor in factors]
    return [full if (i + 1) % size == 0 or i >= count // size * size else lightning[i] for i in range(count)]


def spec(config: Config) -> ArchSpec:
    part, traditional = config.number("partial_rotary_factor", 1.0), config.flag("rope_traditional", False)

    def attention(head_dim: int, **changes: Any) -> AttentionSpec:
        rope = config.rope(int(head_dim * part), traditional=traditional)
        return projections(config, head_dim=head_dim, rope=rope, **changes)

    even, heads = config.even_head_dim(), config.positive("num_attention_heads")
    full, linear = attention(config.positive("head_dim", even)), attention(even, kv_heads=heads)
    sparse = None
    if config.get("num_experts") is not None:
        sparse = mixture(config, compiled=False, pick="front", eps=None)
    return arch(config, mixers(config, full, linear, first=1, blocks=False), sparse)
