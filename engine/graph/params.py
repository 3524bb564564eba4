"""Checkpoint parameters: linear maps and embeddings, dense or packed, taken from a weight table and checked.

Letters: O output features, I input features, G groups along I, W 32-bit words along I.
A weight table is read through `Weights`, which knows at the end what was missing and what nobody read.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

import mlx.core as mx

from engine.errors import UnsupportedConfig, WeightsMismatch
from engine.graph.hadamard import Rotated, rotated


@dataclass(frozen=True)
class Packing:
    """How a weight was quantised."""

    group_size: int
    bits: int
    mode: str


# The modes whose scales are bytes allow one (bits, group size) pair each (mlx-lm 0.32.2, utils.py infer_quant_config).
_MODE_DEFAULTS = {"affine": (64, 4), "mxfp4": (32, 4), "nvfp4": (16, 4), "mxfp8": (32, 8)}
# quant_method of an original checkpoint, the format where that is "compressed-tensors" -> its packing. "fp8" is made
# dense by a rule of the family (renames.py).
_ORIGINAL_PACKINGS: dict[str, Mapping[str, Any] | None] = {
    "mxfp4": {"group_size": 32, "bits": 4, "mode": "mxfp4"},
    "mxfp4-pack-quantized": {"group_size": 32, "bits": 4, "mode": "mxfp4"},
    "mxfp8": {"group_size": 32, "bits": 8, "mode": "mxfp8"},
    "pack-quantized": {"group_size": 32, "bits": 4, "mode": "affine"},
    "fp8": None,
}
_BYTE_SCALED = {(4, 16): "nvfp4", (4, 32): "mxfp4", (8, 32): "mxfp8"}


# With this many keys missing the config is of another model; building on would only take time.
MANY = 1000


class Linear:
    """y = x W^T + b with a dense W [O, I]."""

    def __init__(self, weight: mx.array, bias: mx.array | None) -> None:
        self.weight, self.bias = weight, bias
        self._turned, self._across = weight, weight.T  # made once: a step of a small model is mostly its operations

    def __call__(self, x: mx.array) -> mx.array:
        if self._turned is not self.weight:
            self._turned, self._across = self.weight, self.weight.T
        return x @ self._across if self.bias is None else mx.addmm(self.bias, x, self._across)


class Packed:
    """A packed map: weight [..., O, W], scales and biases [..., O, G]."""

    def __init__(self, weight: mx.array, scales: mx.array, biases: mx.array | None, packing: Packing) -> None:
        self.arrays, self.how = (weight, scales, biases), asdict(packing)
        self.flat = False  # see engine.graph.fused.flatten

    def __call__(self, x: mx.array, transpose: bool = True) -> mx.array:
        """x [..., I] -> [..., O], or with `transpose` False from O to I."""
        if self.flat and x.ndim == 3 and x.shape[1] == 1 and x.shape[0] > 1:
            return mx.quantized_matmul(x[:, 0], *self.arrays, transpose=transpose, **self.how)[:, None]
        return mx.quantized_matmul(x, *self.arrays, transpose=transpose, **self.how)

    def of_experts(self, x: mx.array, experts: mx.array, ordered: bool) -> mx.array:
        return mx.gather_qmm(x, *self.arrays, rhs_indices=experts, sorted_indices=ordered, transpose=True, **self.how)

    def rows(self, ids: mx.array) -> mx.array:
        weight, scales, biases = self.arrays
        return mx.dequantize(weight[ids], scales[ids], None if biases is None else biases[ids], **self.how)


class PackedLinear:
    """y = x W^T + b with W packed."""

    def __init__(self, packed: Packed, bias: mx.array | None) -> None:
        self.packed, self.bias = packed, bias

    def __call__(self, x: mx.array) -> mx.array:
        y = self.packed(x)
        return y if self.bias is None else y + self.bias


LinearMap = Linear | PackedLinear | Rotated


class Embedding:
    """Rows of a table [O, I], dense or packed; `as_linear` uses the same table as an output head."""

    def __init__(self, linear: LinearMap) -> None:
        self.as_linear = linear

    def __call__(self, ids: mx.array) -> mx.array:
        table = self.as_linear
        if isinstance(table, Linear):
            return table.weight[ids]  # [..., I]
        if isinstance(table, Rotated):
            return rotated(Embedding(table.linear)(ids).astype(mx.float16), table.signs, back=True)
        return table.packed.rows(ids)


class ExpertsLinear:
    """One of a stack of linear maps per token: weight [E, O, I], dense or packed, and bias [E, O]."""

    def __init__(self, weight: mx.array | Packed, bias: mx.array | None) -> None:
        self.weight, self.bias = weight, bias

    def __call__(self, x: mx.array, experts: mx.array, ordered: bool) -> mx.array:
        if isinstance(self.weight, Packed):
            y = self.weight.of_experts(x, experts, ordered)
        else:
            y = mx.gather_mm(x, self.weight.swapaxes(-1, -2), rhs_indices=experts, sorted_indices=ordered)
        return y if self.bias is None else y + mx.expand_dims(self.bias[experts], -2)

    def of_all(self, x: mx.array) -> mx.array:
        """x [E or 1, T, I], T tokens -> [E, T, O], every one through every map; dense weights only."""
        assert isinstance(self.weight, mx.array)
        y = x @ self.weight.swapaxes(-1, -2)
        return y if self.bias is None else y + self.bias[:, None]


class HeadsLinear:
    """A linear map per head: dense weight [H, O, I]."""

    def __init__(self, weight: mx.array) -> None:
        self.weight = weight

    def __call__(self, x: mx.array, transpose: bool = True) -> mx.array:
        """x [B, H, L, I] -> [B, H, L, O], or with `transpose` False from O to I; x may have one head for all."""
        return x @ (self.weight.swapaxes(-1, -2) if transpose else self.weight)


class Weights:
    """A checkpoint's arrays by key, handed out and checked against the shape that the spec asks.

    `at`: what all keys, those of config.json's quantisation too, are under; those that are asked for lack it.
    training: modules that loop over tokens, or whose operations have no gradient on some device, take their training
    form: the same function to rounding. fill: makes what is absent, of a model that has yet to be trained.
    """

    def __init__(
        self,
        arrays: Mapping[str, mx.array],
        config: Mapping[str, Any],
        path: str,
        at: str = "",
        *,
        training: bool = False,
        fill: Callable[[str, tuple[int, ...]], mx.array] | None = None,
    ) -> None:
        self.training = training
        self._fill = fill
        self._left = dict(arrays)
        self._at = at
        self._given: dict[str, mx.array] = {}
        self._path = path
        self._quantization = _quantization(config)
        self._missing: list[str] = []
        self._shapes: list[str] = []
        self.parameters = 0  # logical: a packed weight counts its values; scales and biases do not count

    @staticmethod
    def join(path: str, key: str) -> str:
        """A key below `path`; an empty path or key adds nothing."""
        return f"{path}.{key}" if path and key else path or key

    def take(self, key: str, shape: tuple[int, ...]) -> mx.array:
        """The parameter under `key`. Absent or misshapen keys are collected, and reported together by `finish`."""
        self._count(key, shape)
        return self._array(key, shape)

    def _count(self, key: str, shape: tuple[int, ...]) -> None:
        self.parameters += 0 if self.join(self._at, key) in self._given else math.prod(shape)

    def _array(self, key: str, shape: tuple[int, ...]) -> mx.array:
        key = self.join(self._at, key)
        if key not in self._left and key not in self._given and self._fill is not None:
            self._left[key] = self._fill(key, shape)
        if key not in self._left and key not in self._given:
            self._missing.append(key)
            if len(self._missing) >= MANY:
                raise WeightsMismatch(self._path, self._missing, (), ())
            return mx.zeros(shape)
        array = self._left.pop(key) if key in self._left else self._given[key]
        self._given[key] = array
        if tuple(array.shape) != shape:
            self._shapes.append(f"{key} {list(array.shape)}, expected {list(shape)}")
        return array

    def linear(self, path: str, out_dim: int, in_dim: int, bias: bool) -> LinearMap:
        """The linear map under `path`, packed if the checkpoint says so, of a rotated input where it has signs."""
        b = self.take(f"{path}.bias", (out_dim,)) if bias else None
        weight = self._weight(path, (out_dim, in_dim))
        if not isinstance(weight, Packed):
            return Linear(weight, b)
        packed, signs = PackedLinear(weight, b), self._seen(f"{path}.signs")
        return packed if signs is None else Rotated(packed, self._array(f"{path}.signs", signs.shape))

    def experts(self, path: str, experts: int, out_dim: int, in_dim: int, bias: bool) -> ExpertsLinear:
        """The stacked linear maps under `path`, one per expert, packed if the checkpoint says so."""
        b = self.take(f"{path}.bias", (experts, out_dim)) if bias else None
        return ExpertsLinear(self._weight(path, (experts, out_dim, in_dim)), b)

    def heads(self, path: str, heads: int, out_dim: int, in_dim: int) -> HeadsLinear | Packed:
        """The linear maps under `path`, one per head, packed if the checkpoint says so."""
        weight = self._weight(path, (heads, out_dim, in_dim))
        return weight if isinstance(weight, Packed) else HeadsLinear(weight)

    def _weight(self, path: str, shape: tuple[int, ...]) -> mx.array | Packed:
        """The weight [..., O, I] of a map, packed if the checkpoint says so."""
        *rows, in_dim = shape
        packing = self._packing(path, in_dim)
        if packing is None:
            return self.take(f"{path}.weight", shape)
        if in_dim % packing.group_size:
            raise UnsupportedConfig(f"{path}: group size {packing.group_size} does not divide {in_dim} input features")
        groups = (*rows, in_dim // packing.group_size)
        self._count(f"{path}.weight", shape)
        weight = self._array(f"{path}.weight", (*rows, in_dim * packing.bits // 32))
        scales = self._array(f"{path}.scales", groups)
        biases = self._array(f"{path}.biases", groups) if packing.mode == "affine" else None
        return Packed(weight, scales, biases, packing)

    def embedding(self, path: str, vocab: int, dim: int) -> Embedding:
        return Embedding(self.linear(path, vocab, dim, bias=False))

    def has(self, key: str) -> bool:
        return self.join(self._at, key) in self._left

    def given(self) -> dict[str, mx.array]:
        """Every array that was handed out, by its full key."""
        return dict(self._given)

    def finish(self) -> None:
        """Raise `WeightsMismatch` if any key was missing, misshapen or left over."""
        if self._missing or self._left or self._shapes:
            raise WeightsMismatch(self._path, self._missing, self._left, self._shapes)

    def _seen(self, key: str) -> mx.array | None:
        """The array under `key`, handed out or not."""
        key = self.join(self._at, key)
        return self._left.get(key, self._given.get(key))

    def _packing(self, path: str, in_dim: int) -> Packing | None:
        """config.json's entry for `path`; else, where scales are stored, inferred from the shapes (mlx-lm's rule)."""
        quantization = self._quantization
        if quantization is None:
            return None
        entry = quantization.get(self.join(self._at, path))
        if entry is False:
            return None
        if isinstance(entry, Mapping) or entry is True:
            return _packing_entry(quantization if entry is True else entry, path)
        scales, weight = self._seen(f"{path}.scales"), self._seen(f"{path}.weight")
        if scales is None or weight is None:
            return None
        group, bits = in_dim // scales.shape[-1], weight.shape[-1] * 32 // in_dim
        if scales.dtype != mx.uint8:
            return Packing(group, bits, "affine")
        if (bits, group) not in _BYTE_SCALED:
            raise UnsupportedConfig(f"{path}: no quantisation mode has {bits} bits with group size {group}")
        return Packing(group, bits, _BYTE_SCALED[bits, group])


def _packing_entry(entry: Mapping[str, Any], path: str) -> Packing:
    """A config entry with mlx's defaults for what it leaves out."""
    mode = str(entry.get("mode", "affine"))
    if mode not in _MODE_DEFAULTS:
        raise UnsupportedConfig(f"{path}: quantisation mode {mode!r}; known: {', '.join(_MODE_DEFAULTS)}")
    group_size, bits = _MODE_DEFAULTS[mode]
    return Packing(int(entry.get("group_size") or group_size), int(entry.get("bits") or bits), mode)


def _quantization(config: Mapping[str, Any]) -> Mapping[str, Any] | None:
    quantization = config.get("quantization")
    if quantization is not None and not isinstance(quantization, Mapping):
        raise UnsupportedConfig(f"quantization={quantization!r}; known: an object with group_size, bits and mode")
    if quantization is not None and quantization.get("mode", "affine") not in _MODE_DEFAULTS:
        raise UnsupportedConfig(f"quantization mode {quantization['mode']!r}; known: {', '.join(_MODE_DEFAULTS)}")
    given = config.get("quantization_config", (config.get("text_config") or {}).get("quantization_config"))
    if quantization is None and given is not None:
        method = given.get("quant_method", "unnamed")
        method = given.get("format", method) if method == "compressed-tensors" else method
        if method == "fp8" and given.get("scale_fmt") == "ue8m0" and given.get("weight_block_size") == [32, 32]:
            method = "mxfp8"  # tiles of 32 rows whose scales are powers of two
        if method not in _ORIGINAL_PACKINGS:
            known = f"{', '.join(_ORIGINAL_PACKINGS)}, and mlx's own 'quantization'"
            raise UnsupportedConfig(f"quantization_config with quant_method={method!r}; known: {known}")
        quantization = _ORIGINAL_PACKINGS[method]
    if config.get("quantize_activations"):
        raise UnsupportedConfig("quantize_activations=true; known: false")
    return quantization
