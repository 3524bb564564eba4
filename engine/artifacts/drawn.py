"""Model folders without tensors: every weight is drawn on the device when the folder is loaded.

Such a folder has a config.json and `drawn.json`, which names each tensor with its dtype and shape. Speed depends on
shapes alone, so a model of real size can be measured without its weights: nothing is fetched, and nothing large is
written to disk. Equal files give equal weights in every process on one device.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import mlx.core as mx

from engine.errors import CorruptFile, InvalidValue

DRAWN = "drawn.json"
MATRIX_STD = 0.02
SCALE_SPREAD = 0.1  # packed groups differ a little in size, as real ones do
DTYPES = {
    "float32": mx.float32,
    "float16": mx.float16,
    "bfloat16": mx.bfloat16,
    "uint32": mx.uint32,
}


@dataclass(frozen=True, kw_only=True)
class Draw:
    """What drawn.json says. tensors: name -> (dtype, shape); bits: of packed weights, 0 where none are packed.

    Errors: `InvalidValue` for a dtype or a shape that cannot be drawn.
    """

    seed: int
    bits: int
    tensors: Mapping[str, tuple[str, tuple[int, ...]]]

    def __post_init__(self) -> None:
        for name, (dtype, shape) in self.tensors.items():
            if dtype not in DTYPES:
                raise InvalidValue(f"{DRAWN} dtype of {name}", dtype, DTYPES)
            if any(isinstance(n, bool) or not isinstance(n, int) or n < 1 for n in shape):
                raise InvalidValue(f"{DRAWN} shape of {name}", shape, "integers >= 1")
            if name.endswith(".biases") and name.removesuffix("biases") + "scales" not in self.tensors:
                raise InvalidValue(f"{DRAWN} tensors", name, "biases beside the scales of the same weight")

    def as_dict(self) -> dict[str, Any]:
        """The document of the file."""
        tensors = {name: [dtype, *shape] for name, (dtype, shape) in self.tensors.items()}
        return {"seed": self.seed, "bits": self.bits, "tensors": tensors}

    def bytes_of(self, name: str) -> int:
        """Bytes of one tensor."""
        dtype, shape = self.tensors[name]
        return math.prod(shape) * DTYPES[dtype].size


def read_draw(folder: Path) -> Draw | None:
    """The draw of a folder; None for a folder that holds tensors. Errors: `CorruptFile`, `InvalidValue`."""
    path = folder / DRAWN
    if not path.is_file():
        return None
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        tensors = {str(name): (str(row[0]), tuple(row[1:])) for name, row in found["tensors"].items()}
        return Draw(seed=int(found["seed"]), bits=int(found["bits"]), tensors=tensors)
    except (ValueError, KeyError, IndexError, TypeError, AttributeError) as error:
        raise CorruptFile(path, f"not a list of tensors to draw: {error!r}") from error


def draw_weights(draw: Draw) -> dict[str, mx.array]:
    """Every tensor, evaluated one by one, so that what drawing takes beside the weights is that of one tensor.

    Matrices are normal with a small deviation, packed ones too once unpacked; vectors are 1 where they scale (a norm's
    weight), else 0: activations neither vanish nor grow over any number of layers.
    """
    weights = {}
    for name in draw.tensors:
        weights[name] = _tensor(draw, name)
        mx.eval(weights[name])
    return weights


def _tensor(draw: Draw, name: str) -> mx.array:
    dtype, shape = draw.tensors[name]
    kind = DTYPES[dtype]
    if kind == mx.uint32:
        octets = mx.random.randint(0, 256, (*shape, kind.size), dtype=mx.uint8, key=_key(draw, name))
        return octets.view(kind).reshape(shape)
    if name.endswith((".scales", ".biases")):
        stem = name.rpartition(".")[0]
        step = MATRIX_STD * math.sqrt(12) / 2**draw.bits  # of values spread evenly over all that the bits can say
        drawn = mx.random.uniform(1 - SCALE_SPREAD, 1 + SCALE_SPREAD, shape, key=_key(draw, f"{stem}.scales"))
        middle = -(2**draw.bits - 1) / 2 if name.endswith(".biases") else 1.0
        return (step * middle * drawn).astype(kind)
    if len(shape) < 2:
        return mx.ones(shape, kind) if name.endswith(".weight") else mx.zeros(shape, kind)
    return mx.random.normal(shape, dtype=kind, scale=MATRIX_STD, key=_key(draw, name))


def _key(draw: Draw, name: str) -> mx.array:
    digest = hashlib.sha256(f"{draw.seed}\n{name}".encode()).digest()
    return mx.random.key(int.from_bytes(digest[:8], "big"))
