"""Affine quantisation of dense model folders: the same words, scales and biases as mlx-lm's quantize_model writes."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import mlx.core as mx

from engine.artifacts.checkpoint import read_config, read_weights
from engine.artifacts.folder import new_folder, write_model
from engine.errors import InvalidValue

WIDTHS = (2, 3, 4, 5, 6, 8)
GROUPS = (32, 64, 128)
WIDE = 8


@dataclass(frozen=True, kw_only=True)
class QuantPlan:
    """bits: of a value, in groups of `group_size` that share a scale and a bias; eight: the modules that get 8 bits
    instead, by a part of their path ("v_proj", "layers.0")."""

    bits: int
    group_size: int = 64
    eight: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.bits not in WIDTHS:
            raise InvalidValue("bits", self.bits, WIDTHS)
        if self.group_size not in GROUPS:
            raise InvalidValue("group_size", self.group_size, GROUPS)

    def bits_of(self, module: str) -> int:
        """Of the module with this path."""
        return WIDE if any(holds(module, part) for part in self.eight) else self.bits

    def widths(self, arrays: Mapping[str, mx.array]) -> dict[str, int]:
        """Module -> bits, of every matrix whose rows are whole groups, as mlx-lm chooses them; the others stay dense.

        Raises `InvalidValue` for a part of `eight` that no module's path holds, and where nothing is left to pack.
        """
        modules = [
            name.removesuffix(".weight")
            for name, array in arrays.items()
            if name.endswith(".weight") and array.ndim > 1 and array.shape[-1] % self.group_size == 0
        ]
        for part in self.eight:
            if not any(holds(module, part) for module in modules):
                raise InvalidValue("eight", part, f"a part of a path: {', '.join(modules)}")
        if not modules:
            raise InvalidValue("group_size", self.group_size, "what divides the rows of a matrix")
        return {module: self.bits_of(module) for module in modules}

    def entry(self, widths: Mapping[str, int]) -> dict[str, Any]:
        """config.json's "quantization": the usual width, and an entry for each module of another."""
        usual = {"group_size": self.group_size, "mode": "affine"}
        others = {module: {**usual, "bits": bits} for module, bits in widths.items() if bits != self.bits}
        return {**usual, "bits": self.bits, **others}


def holds(module: str, part: str) -> bool:
    """Whether the names of `part` stand in the path one behind the other."""
    return f".{part}." in f".{module}."


def pack_arrays(arrays: Mapping[str, mx.array], plan: QuantPlan) -> tuple[dict[str, mx.array], dict[str, Any]]:
    """Packed arrays by their names in the checkpoint, and the config's entry. Scales and biases keep the dtype that
    the weights had."""
    widths = plan.widths(arrays)
    packed: dict[str, mx.array] = {}
    for name, array in arrays.items():
        module = name.removesuffix(".weight")
        if name != f"{module}.weight" or module not in widths:
            packed[name] = array
            continue
        parts = mx.quantize(array, group_size=plan.group_size, bits=widths[module])
        packed |= dict(zip((name, f"{module}.scales", f"{module}.biases"), parts, strict=True))
    return packed, plan.entry(widths)


def quantize_folder(source: Path, target: Path, plan: QuantPlan) -> Path:
    """Write `target`, the dense folder `source` packed by `plan`, other files copied; returns `target`.

    Raises `InvalidValue` for a source that is quantised, a target that exists and a plan that does not fit.
    """
    config = read_config(source)
    if config.get("quantization") is not None:
        raise InvalidValue("source", str(source), "a dense model folder; this one is quantised already")
    packed, entry = pack_arrays(read_weights(source), plan)
    with new_folder(target) as folder:
        for path in sorted(source.iterdir()):
            if path.is_file() and path.name != "config.json" and ".safetensors" not in path.name:
                shutil.copyfile(path, folder / path.name)
        write_model(folder, packed, {**config, "quantization": entry, "quantization_config": entry})
    return target
