"""qwen3_next: gated delta nets, and in every full_attention_interval-th layer attention whose queries' projection holds
its gate too; softmax routing beside a gated shared expert."""

from dataclasses import replace
from typing import Any

from engine.errors import InvalidValue
from engine.graph.delta_net import DeltaSpec
from engine.graph.families.common import Config
from engine.graph.families.qwen3_moe import sparse_layers
from engine.graph.renames import FILTERS, Arrays, Drop, stacked
from engine.graph.spec import ArchSpec, AttentionSpec, GateSpec, LayerSpec, MoeSpec, RouterSpec

_NORMS = ("input_layernorm", "post_attention_layernorm", "model.norm", "q_norm", "k_norm")


def delta(config: Config, maps: Any, eps: float, negative: bool = False) -> DeltaSpec:
    """A gated delta net of the config's linear_* fields."""
    k_heads, v_heads = config.positive("linear_num_key_heads"), config.positive("linear_num_value_heads")
    if v_heads % k_heads:
        raise InvalidValue(f"config.json {config.path}linear_num_value_heads", v_heads, f"a multiple of {k_heads}")
    k_dim, v_dim, width = (
        config.positive(f"linear_{key}") for key in ("key_head_dim", "value_head_dim", "conv_kernel_dim")
    )
    return DeltaSpec(
        k_heads=k_heads, v_heads=v_heads, k_dim=k_dim, v_dim=v_dim, width=width, eps=eps, maps=maps, negative=negative
    )


def mixers(config: Config, linear: DeltaSpec, full: AttentionSpec) -> list[DeltaSpec | AttentionSpec]:
    """One a layer, by full_attention_interval; layer_types may say the same, nothing else."""
    nth, count = config.positive("full_attention_interval"), config.positive("num_hidden_layers")
    kinds = ["linear_attention" if (i + 1) % nth else "full_attention" for i in range(count)]
    if config.each("layer_types", kinds) != kinds:
        raise InvalidValue(f"config.json {config.path}layer_types", config["layer_types"], f"{kinds}, as the interval")
    return [full if kind == "full_attention" else linear for kind in kinds]


def named(layers: list[LayerSpec]) -> list[LayerSpec]:
    """The same with the delta nets under linear_attn."""
    return [replace(x, attn_key="linear_attn") if isinstance(x.attention, DeltaSpec) else x for x in layers]


def gated_attention(config: Config) -> AttentionSpec:
    """Attention with a rope on part of a head, norms on queries and keys and a gate in the queries' projection."""
    dims = int(config.positive("head_dim") * config.number("partial_rotary_factor"))
    bias = config.flag("attention_bias", False)
    return config.attention(bias=bias, rope=config.rope(dims), qk_norm=config.qk_heads(), gate=GateSpec(key=None))


def shared_moe(config: Config) -> MoeSpec:
    """Softmax routing, and a shared expert behind a sigmoid gate."""
    normalise = "sum" if config.flag("norm_topk_prob") else None
    router = RouterSpec(score="softmax", pick="back", normalise=normalise)  # type: ignore[arg-type]
    beside = config.mlp(hidden=config.positive("shared_expert_intermediate_size"))
    return config.moe(router, shared=beside, shared_at="shared_expert", shared_gate="shared_expert_gate")


def original(arrays: Arrays) -> Arrays:
    """The original layout, whose convolutions are [C, 1, W], stores norms as w for 1 + w."""
    if all(v.shape[-1] == 1 for k, v in arrays.items() if k.endswith("conv1d.weight")):
        return arrays
    ends = tuple(f"{norm}.weight" for norm in _NORMS)
    return {k: v + 1.0 if k.endswith(ends) else v for k, v in arrays.items()}


RULES = (Drop((r"(^|\.)mtp\.",)), original, FILTERS, *stacked("mlp", "switch_mlp"))


def spec(config: Config) -> ArchSpec:
    config = config.defaulted({"full_attention_interval": 4, "norm_topk_prob": False, "tie_word_embeddings": False})
    attn = mixers(config, delta(config, "grouped", config.number("rms_norm_eps")), gated_attention(config))
    made = sparse_layers(config, attn.__getitem__, shared_moe(config) if config.count("num_experts") else None)
    return config.arch(named(made), tied=config.flag("tie_word_embeddings"), more_rules=RULES)
