"""Reading GGUF files and repacking their blocks in MLX's affine form without changing a value.

Shape letters: R rows, C columns, N = C / 32 blocks a row. A block's f16 scale becomes fp32 as it is; quantised integers
keep their value (Q8_0: value + 128, because MLX's are unsigned). scale * q is exact in fp32 (11 + 8 bits), so MLX's
scale * q + bias rounds at most once, exactly where the `gguf` package's own dequantisation does.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from gguf import GGMLQuantizationType as Kind
from gguf import GGUFEndian, GGUFReader

from engine.errors import CorruptFile, UnsupportedConfig

GROUP = 32  # values a block, of all the quantised types below


@dataclass(frozen=True)
class Packed:
    """A tensor [R, C]. bits None: `weight` holds fp32 values [..., C], no scales. Otherwise `weight` is uint32
    [R, C * bits / 32], and `scales`, `biases` are fp32 [R, N].
    """

    weight: np.ndarray
    scales: np.ndarray | None = None
    biases: np.ndarray | None = None
    bits: int | None = None


@dataclass(frozen=True)
class GgufTensor:
    """A tensor as stored: `shape` in row-major order, `data` the raw bytes or values (a view of the file)."""

    name: str
    kind: Kind
    shape: tuple[int, ...]
    data: np.ndarray


@dataclass(frozen=True)
class GgufFile:
    path: Path
    metadata: Mapping[str, Any] = field(repr=False)
    tensors: tuple[GgufTensor, ...] = field(repr=False)


class _Reader(GGUFReader):
    """The package's reader, except that it does not run past the end of a truncated or damaged file."""

    def _get(self, offset: int, dtype: Any, count: int = 1, override_order: Any = None) -> np.ndarray:
        end = int(offset) + np.dtype(dtype).itemsize * int(count)
        if end > len(self.data):
            raise EOFError(f"truncated or damaged: byte {end} is asked for, {len(self.data)} are there")
        array: np.ndarray = super()._get(offset, dtype, count, override_order)
        return array


def read_gguf(path: Path) -> GgufFile:
    """Metadata and tensors. Raises CorruptFile for what is no whole GGUF file, UnsupportedConfig for big-endian."""
    if not path.is_file():
        raise CorruptFile(path, "no such file")
    with path.open("rb") as f:
        magic = f.read(4)
    if magic != b"GGUF":
        raise CorruptFile(path, "not a GGUF file" if magic else "the file is empty")
    try:
        reader = _Reader(path)
        metadata = {name: entry.contents() for name, entry in reader.fields.items()}
    except (ValueError, KeyError, IndexError, TypeError, OverflowError, EOFError, MemoryError) as error:
        raise CorruptFile(path, str(error).strip("'") or type(error).__name__) from error
    if reader.endianess != GGUFEndian.LITTLE:
        raise UnsupportedConfig(f"{path}: big-endian GGUF; supported: little-endian")
    tensors = tuple(
        GgufTensor(t.name, Kind(t.tensor_type), tuple(int(n) for n in reversed(t.shape)), t.data)
        for t in reader.tensors
    )
    return GgufFile(path, metadata, tensors)


def repack(tensor: GgufTensor) -> Packed:
    """The tensor in MLX's form. Raises UnsupportedConfig for a type outside `SUPPORTED`."""
    if tensor.kind in (Kind.F32, Kind.F16):
        return Packed(np.asarray(tensor.data, dtype=np.float32).reshape(tensor.shape))
    if tensor.kind not in _UNPACK:
        raise UnsupportedConfig(
            f"{tensor.name}: GGML type {tensor.kind.name} is not supported; supported: {', '.join(SUPPORTED)}"
        )
    rows = int(np.prod(tensor.shape[:-1], dtype=np.int64))
    blocks = tensor.data.reshape(rows, tensor.shape[-1] // GROUP, -1)  # [R, N, bytes a block]
    return _UNPACK[tensor.kind](np.ascontiguousarray(blocks))


def permute_rows(packed: Packed, heads: int) -> Packed:
    """Undo GGUF's order of the q and k rows: within a head, (d/2, 2) becomes (2, d/2).

    llama.cpp rotates neighbours, MLX (traditional=False) rotates halves; its converter reorders the rows for that.
    """

    def permuted(array: np.ndarray) -> np.ndarray:
        split = array.reshape(heads, array.shape[0] // heads // 2, 2, *array.shape[1:])
        return np.ascontiguousarray(split.swapaxes(1, 2)).reshape(array.shape)

    if packed.scales is None or packed.biases is None:
        return Packed(permuted(packed.weight))
    return Packed(permuted(packed.weight), permuted(packed.scales), permuted(packed.biases), packed.bits)


def _half(blocks: np.ndarray, at: int) -> np.ndarray:
    """The f16 at byte `at` of each block, as fp32 [R, N]."""
    halves = np.ascontiguousarray(blocks[..., at : at + 2]).view("<f2")[..., 0]
    return halves.astype(np.float32)


def _nibbles(blocks: np.ndarray) -> np.ndarray:
    """16 bytes a block -> uint32 [R, C / 8].

    In a GGML block byte i holds values i (low nibble) and i + 16 (high); in MLX's byte i they are 2i and 2i + 1.
    """
    values = np.concatenate([blocks & 0x0F, blocks >> 4], axis=-1)  # [R, N, 32]
    joined = values[..., 0::2] | (values[..., 1::2] << 4)  # [R, N, 16]
    return np.ascontiguousarray(joined).reshape(blocks.shape[0], -1).view("<u4")


def _q8_0(blocks: np.ndarray) -> Packed:
    scales = _half(blocks, 0)
    weight = np.ascontiguousarray(blocks[..., 2:] ^ 0x80)  # int8 + 128 as uint8
    return Packed(weight.reshape(blocks.shape[0], -1).view("<u4"), scales, scales * np.float32(-128), 8)


def _q4_0(blocks: np.ndarray) -> Packed:
    scales = _half(blocks, 0)
    return Packed(_nibbles(blocks[..., 2:]), scales, scales * np.float32(-8), 4)


def _q4_1(blocks: np.ndarray) -> Packed:
    return Packed(_nibbles(blocks[..., 4:]), _half(blocks, 0), _half(blocks, 2), 4)


_UNPACK = {Kind.Q8_0: _q8_0, Kind.Q4_0: _q4_0, Kind.Q4_1: _q4_1}
SUPPORTED = ("F32", "F16", *(kind.name for kind in _UNPACK))
