"""mamba2: one state-space mixer a layer, and nothing else."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from engine.graph.families.common import Config
from engine.graph.renames import FILTERS
from engine.graph.spec import ArchSpec, LayerSpec, Norms, NormSpec, StemSpec
from engine.graph.ssm import SsmSpec


def limits(config: Config, default: tuple[float, float] | None = None) -> tuple[float, float]:
    """time_step_limit; its upper end may be infinite."""
    value = config.read("time_step_limit", default) if default else config.read("time_step_limit")
    pair = value if isinstance(value, (list, tuple)) else ()
    # transformers 5 writes infinity as an object (register: "mamba2-configs-of-transformers").
    pair = [math.inf if n == {"__float__": "Infinity"} else n for n in pair]
    numbers = [n for n in pair if isinstance(n, (int, float)) and not isinstance(n, bool)]
    if len(pair) != 2 or len(numbers) != 2 or not 0 <= numbers[0] <= numbers[1]:
        raise config.invalid("time_step_limit", value, "two numbers, 0 <= low <= high")
    return numbers[0], numbers[1]


def ssm(config: Config, heads: str, head_dim: str, state: str, groups: str, **fields: Any) -> SsmSpec:
    """A state-space mixer, by the config's keys for its sizes."""
    count, parts = config.positive(heads), config.positive(groups)
    if count % parts:
        raise config.invalid(groups, parts, f"a divisor of {heads}={count}")
    fields = {"head_dim": config.positive(head_dim), "state": config.positive(state), **fields}
    return SsmSpec(heads=count, groups=parts, **fields)


def by_kind(config: Config, key: str, kinds: Sequence[str], build: Mapping[str, Callable[[Config], Any]]) -> list[Any]:
    """A mixer a layer, by the kinds that the config has under `key`; what no layer needs is not read."""
    for kind in kinds:
        if not isinstance(kind, str) or kind not in build:
            raise config.invalid(key, kind, build)
    made = {kind: build[kind](config) for kind in build if kind in kinds}
    return [made[kind] for kind in kinds]


def hybrid(config: Config, key: str, build: Mapping[str, Any], feed: Any, **fields: Any) -> list[LayerSpec]:
    """Layers of "mamba" or "self_attn", by the kinds under `key`, each with an MLP."""
    kinds = config.each(key)
    layers = config.layers(by_kind(config, key, kinds, build), feed, **fields)
    names = ("mamba" if kind == "mamba" else "self_attn" for kind in kinds)
    return [replace(layer, attn_key=name) for layer, name in zip(layers, names, strict=True)]


def backbone(config: Config, mixer: Any, eps: float) -> ArchSpec:
    """Layers that are one mixer behind a norm (mamba, mamba2)."""
    layer = LayerSpec(attention=mixer, mlp=None, norms=Norms(pre_attn=NormSpec(key="norm", eps=eps)), attn_key="mixer")
    return config.arch(
        layer,
        stem=StemSpec(key="backbone.embeddings"),
        layers_key="backbone.layers",
        norm=NormSpec(key="backbone.norm_f", eps=eps),
        more_rules=(FILTERS,),
    )


def spec(config: Config) -> ArchSpec:
    config.choice("hidden_act", ("silu",), "silu")
    eps, bias = config.number("layer_norm_epsilon"), config.flag("use_bias")
    state = "state_size" if config.get("ssm_state_size") is None else "ssm_state_size"
    mixer = ssm(
        config,
        *("num_heads", "head_dim", state, "n_groups"),
        width=config.positive("conv_kernel"),
        conv_bias=config.flag("use_conv_bias"),
        in_bias=bias,
        out_bias=bias,
        limits=limits(config),
        norm=NormSpec(key="norm", eps=eps),
    )
    return backbone(config, mixer, eps)
