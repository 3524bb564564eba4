"""The switch between a recurrence as mlx-lm runs it and its plain form."""

from __future__ import annotations

from dataclasses import is_dataclass, replace
from typing import Any

from engine.errors import InvalidValue
from engine.graph.spec import ArchSpec


def plain_recurrences(spec: ArchSpec) -> ArchSpec:
    """The same graph with every recurrence in its plain form; `InvalidValue` where none has two."""
    layers = _plain(spec.layers)
    if layers == spec.layers:
        raise InvalidValue("recurrence", "plain", f"fast: {spec.family} has no recurrence with two forms")
    return replace(spec, layers=layers)


def _plain(spec: Any) -> Any:
    """The same with plain=True in each spec that has the field, at any depth."""
    if isinstance(spec, tuple):
        return tuple(_plain(part) for part in spec)
    if not is_dataclass(spec):
        return spec
    changes = {name: True if name == "plain" else _plain(value) for name, value in vars(spec).items()}
    kind: Any = type(spec)
    return kind(**changes)
