"""qwen3_next: gated delta nets, and in every full_attention_interval-th layer attention whose queries' projection holds
its gate too; softmax routing beside a gated shared expert."""

from dataclasses import replace
from typing import Any

from engine.graph.delta_net import DeltaSpec
from engine.graph.families.common import ArchSpec, Config, Drop, GateSpec, RouterSpec, stacked
from engine.graph.families.qwen3_moe import sparse_layers
from engine.graph.renames import FILTERS, Arrays

_NORMS = ("input_layernorm", "post_attention_layernorm", "model.norm", "q_norm", "k_norm")


def delta(config: Config, maps: Any, eps: float, negative: bool = False) -> DeltaSpec:
    """A gated delta net of the config's linear_* fields."""
    keys = ("num_key_heads", "num_value_heads", "key_head_dim", "value_head_dim", "conv_kernel_dim")
    sizes = [config.positive(f"linear_{key}") for key in keys]
    if sizes[1] % sizes[0]:
        raise config.invalid("linear_num_value_heads", sizes[1], f"a multiple of linear_num_key_heads={sizes[0]}")
    fields: dict[str, Any] = dict(zip(("k_heads", "v_heads", "k_dim", "v_dim", "width"), sizes, strict=True))
    return DeltaSpec(**fields, eps=eps, maps=maps, negative=negative)


def original(arrays: Arrays) -> Arrays:
    """The original layout, whose convolutions are [C, 1, W], stores norms as w for 1 + w."""
    if all(v.shape[-1] == 1 for k, v in arrays.items() if k.endswith("conv1d.weight")):
        return arrays
    ends = tuple(f"{norm}.weight" for norm in _NORMS)
    return {k: v + 1.0 if k.endswith(ends) else v for k, v in arrays.items()}


def hybrid(config: Config, maps: Any, *rules: Any) -> ArchSpec:
    """The decoder; layer_types may say what full_attention_interval does, nothing else."""
    nth, count = config.positive("full_attention_interval"), config.positive("num_hidden_layers")
    kinds = ["linear_attention" if (i + 1) % nth else "full_attention" for i in range(count)]
    if config.each("layer_types", kinds) != kinds:
        raise config.invalid("layer_types", config["layer_types"], f"{kinds}, as full_attention_interval={nth}")
    if not config.flag("attn_output_gate", True):
        raise config.invalid("attn_output_gate", False, "true")
    rope = config.rope(int(config.positive("head_dim") * config.number("partial_rotary_factor")))
    bias, gate = config.flag("attention_bias", False), GateSpec(key=None)
    mixers = {
        "full_attention": config.attention(bias=bias, rope=rope, qk_norm=config.qk_heads(), gate=gate),
        "linear_attention": delta(config, maps, config.number("rms_norm_eps")),
    }
    sparse = None
    if config.count("num_experts"):
        beside = config.mlp(hidden=config.positive("shared_expert_intermediate_size"))
        router = RouterSpec(score="softmax", pick="back", normalise=config.to_sum())
        sparse = config.moe(router, shared=beside, shared_at="shared_expert", shared_gate="shared_expert_gate")
    made = sparse_layers(config, [mixers[kind] for kind in kinds], sparse)
    made = [replace(x, attn_key="linear_attn") if isinstance(x.attention, DeltaSpec) else x for x in made]
    more = (Drop((r"(^|\.)mtp\.",)), original, FILTERS, *stacked("mlp", "switch_mlp"), *rules)
    return config.arch(made, tied=config.tied(), more_rules=more)


def spec(config: Config) -> ArchSpec:
    return hybrid(config, "grouped")
