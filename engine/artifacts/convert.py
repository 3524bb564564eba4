"""Making model folders in mlx-lm's format: from a GGUF file, or by unpacking a quantised folder.

A folder appears under its name when it is complete; until then it lives beside it under a temporary name.
"""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import mlx.core as mx

from engine.artifacts.checkpoint import read_config, read_weights
from engine.artifacts.folder import new_folder, write_model
from engine.artifacts.gguf import GROUP, GgufFile, Packed, permute_rows, read_gguf, repack
from engine.artifacts.gguf_llama import llama_config, llama_tensors
from engine.artifacts.gguf_tokenizer import check_tokenizer, write_tokenizer
from engine.errors import InvalidValue, UnsupportedConfig

Progress = Callable[[str, int, int | None], None]


def convert_gguf(source: Path, target: Path, *, dequantize: bool = False, progress: Progress | None = None) -> Path:
    """Write `target`, a model folder with the values of the GGUF file `source`; returns `target`.

    Quantised tensors keep their integers; scales and biases are fp32, dense tensors too. `dequantize` writes all of
    them as fp32 values. Raises CorruptFile, UnsupportedConfig, WeightsMismatch, InvalidValue (target exists).
    """
    gguf = read_gguf(source)
    config = llama_config(gguf)
    names = llama_tensors(gguf, config)
    check_tokenizer(source, gguf.metadata)
    with new_folder(target) as folder:
        arrays: dict[str, mx.array] = {}
        bits: dict[str, int | None] = {}
        for done, tensor in enumerate(gguf.tensors):
            _report(progress, f"converting {source.name}", done, len(gguf.tensors))
            name, heads = names[tensor.name]
            packed = repack(tensor)
            if heads:
                packed = permute_rows(packed, heads)
            module = name.removesuffix(".weight")
            if packed.weight.ndim > 1:
                bits[module] = packed.bits
            arrays |= _arrays(module, packed)
        if dequantize:
            arrays = _dense(arrays, _quantization(bits))
        elif any(bits.values()):
            config["quantization"] = _quantization(bits)
        config["mlx_frontier"] = _provenance(gguf, dequantized=dequantize)
        write_tokenizer(folder, source, gguf.metadata)
        write_model(folder, arrays, config)
        _report(progress, f"converting {source.name}", len(gguf.tensors), len(gguf.tensors))
    return target


def dequantize_folder(source: Path, target: Path, *, progress: Progress | None = None) -> Path:
    """Write `target`, the dense fp32 version of the quantised folder `source`; returns `target`.

    Every tensor is mx.dequantize of the packed one. Other files are copied. Raises InvalidValue for a folder that is
    not quantised or a target that exists.
    """
    config = read_config(source)
    quantization = config.pop("quantization", None)
    config.pop("quantization_config", None)
    if not isinstance(quantization, dict):
        raise InvalidValue("source", str(source), "a folder whose config.json has a quantization entry")
    weights = read_weights(source)
    with new_folder(target) as folder:
        arrays = _dense(weights, quantization, progress, f"unpacking {source.name}")
        config["mlx_frontier"] = {**config.get("mlx_frontier", {}), "dequantized": True}
        for path in sorted(source.iterdir()):
            if path.is_file() and path.name != "config.json" and ".safetensors" not in path.name:
                shutil.copyfile(path, folder / path.name)
        write_model(folder, arrays, config)
    return target


def _arrays(module: str, packed: Packed) -> dict[str, mx.array]:
    arrays = {f"{module}.weight": mx.array(packed.weight)}
    if packed.scales is not None and packed.biases is not None:
        arrays |= {f"{module}.scales": mx.array(packed.scales), f"{module}.biases": mx.array(packed.biases)}
    return arrays


def _quantization(bits: Mapping[str, int | None]) -> dict[str, Any]:
    """The config's "quantization": the commonest width for all, then an entry for each module that differs
    (False for a dense one), as mlx_lm.utils.load_model reads it.
    """
    widths = Counter(width for width in bits.values() if width is not None)
    if not widths:
        return {}
    usual = widths.most_common(1)[0][0]
    entry: dict[str, Any] = {"group_size": GROUP, "bits": usual, "mode": "affine"}
    for module, width in sorted(bits.items()):
        if width is None:
            entry[module] = False
        elif width != usual:
            entry[module] = {"group_size": GROUP, "bits": width, "mode": "affine"}
    return entry


def _dense(
    arrays: Mapping[str, mx.array],
    quantization: Mapping[str, Any],
    progress: Progress | None = None,
    label: str = "unpacking",
) -> dict[str, mx.array]:
    """fp32 arrays; packed modules are unpacked one at a time, so that memory stays near the result's size."""
    dense: dict[str, mx.array] = {}
    total = len(arrays)
    for done, (name, array) in enumerate(arrays.items()):
        _report(progress, label, done, total)
        module, _, leaf = name.rpartition(".")
        packed = f"{module}.scales" in arrays
        if packed and leaf in ("scales", "biases"):
            continue
        if packed and leaf == "weight":
            own = quantization.get(module)
            how = own if isinstance(own, dict) else quantization
            values, scales = array.shape[-1] * 32 // how["bits"], arrays[f"{module}.scales"].shape[-1]
            if values != scales * how["group_size"]:
                said = f"{how['bits']} bits in groups of {how['group_size']}"
                raise UnsupportedConfig(f"{module}: config.json says {said}, which does not fit the stored shapes")
            array = mx.dequantize(
                array,
                arrays[f"{module}.scales"],
                arrays.get(f"{module}.biases"),
                group_size=how["group_size"],
                bits=how["bits"],
                mode=how.get("mode", "affine"),
            )
        if mx.issubdtype(array.dtype, mx.floating):
            array = array.astype(mx.float32)
        mx.eval(array)
        dense[name] = array
    _report(progress, label, total, total)
    return dense


def _provenance(gguf: GgufFile, *, dequantized: bool) -> dict[str, Any]:
    """What the loader must know: casting the scales of an import to 16 bit would change values, so it refuses."""
    return {
        "imported_from": "gguf",
        "file": gguf.path.name,
        "name": gguf.metadata.get("general.name"),
        "scales": "float32",
        "dequantized": dequantized,
    }


def _report(progress: Progress | None, label: str, done: int, total: int) -> None:
    if progress is not None:
        progress(label, done, total)
