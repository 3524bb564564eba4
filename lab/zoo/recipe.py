"""The recipes of the zoo: what each of its models is, and how it is made again."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import yaml

import experiments
from engine import errors

FOLDER = Path(experiments.__path__[0]) / "zoo"
Kind = Literal["model", "adapter", "mtp", "quantized"]
FIRST_WARM_UP, LATER_WARM_UP = 200, 30  # steps: of a model from its seed, and of everything that begins trained


@dataclass(frozen=True, kw_only=True)
class Stage:
    """One run of training. data: a kind of batch or the name of a stream; seconds, in place of steps, only in a recipe
    that was never run."""

    data: str
    rows: int
    rate: float
    seed: int
    steps: int | None = None
    seconds: float | None = None


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """stages: one behind the other, each from what the one before stored. base: the model that an adapter, a head or a
    quantised version is of. lora, quantization: their numbers."""

    name: str
    about: str
    kind: Kind
    config: Mapping[str, Any] = field(default_factory=dict)
    stages: tuple[Stage, ...] = ()
    base: str | None = None
    lora: Mapping[str, Any] = field(default_factory=dict)
    quantization: Mapping[str, Any] = field(default_factory=dict)

    @property
    def trained(self) -> bool:
        """Whether it was run: a stage that was has its steps."""
        return all(stage.steps is not None for stage in self.stages)

    @property
    def weights(self) -> str:
        """The file that holds them."""
        return {"adapter": "adapters.safetensors", "mtp": "mtp.safetensors"}.get(self.kind, "model.safetensors")


def recipes() -> dict[str, Recipe]:
    """All of them, by name."""
    return {path.stem: _read(path) for path in sorted(FOLDER.glob("*.yaml"))}


def find_recipe(name: str) -> Recipe:
    """Raises `InvalidValue` with the known names."""
    known = recipes()
    if name not in known:
        raise errors.InvalidValue("NAME", name, known)
    return known[name]


def _read(path: Path) -> Recipe:
    held = yaml.safe_load(path.read_text(encoding="utf-8"))
    stages = tuple(Stage(**held.pop(part)) for part in ("training", "then") if part in held)
    return Recipe(name=path.stem, stages=stages, **held)
