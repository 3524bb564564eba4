"""Reading a model folder in mlx-lm's format: config.json and model*.safetensors, checked for damage.

A folder may say how its weights are drawn instead of holding them: see `engine.artifacts.drawn`.
"""

from __future__ import annotations

import hashlib
import itertools
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import mlx.core as mx

from engine.artifacts.cache import cache_folder, write_atomically
from engine.artifacts.drawn import DRAWN, draw_weights, read_draw
from engine.errors import CorruptFile, InvalidValue, ModelNotFound


def read_json(path: Path) -> dict[str, Any]:
    """A JSON object; anything else is `CorruptFile`."""
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise CorruptFile(path, f"not JSON: {error}") from error
    except RecursionError as error:
        raise CorruptFile(path, "not JSON of a sane depth") from error
    if not isinstance(value, dict):
        raise CorruptFile(path, "not a JSON object")
    return value


def read_config(folder: Path) -> dict[str, Any]:
    """config.json; generation_config.json's eos_token_id wins over its own, as in mlx-lm (utils.py load_config)."""
    path = folder / "config.json"
    if not path.is_file():
        raise ModelNotFound(f"{folder}: no config.json")
    config = read_json(path)
    generation = folder / "generation_config.json"
    if generation.is_file():
        eos = read_json(generation).get("eos_token_id")
        if eos is not None:
            config["eos_token_id"] = eos
    eos = config.get("eos_token_id")
    ids = eos if isinstance(eos, list) else [] if eos is None else [eos]
    if any(isinstance(i, bool) or not isinstance(i, int) or i < 0 for i in ids):
        raise InvalidValue("config.json eos_token_id", eos, "a token id, a list of them, or null")
    return config


def weight_files(folder: Path) -> list[Path]:
    """model*.safetensors, sorted, or drawn.json; none, or one that the index names and that is absent, is
    `ModelNotFound`."""
    files = sorted(folder.glob("model*.safetensors"))
    if not files and (folder / DRAWN).is_file():
        return [folder / DRAWN]
    if not files:
        raise ModelNotFound(f"{folder}: no model*.safetensors")
    index = folder / "model.safetensors.index.json"
    if index.is_file():
        named = read_json(index).get("weight_map")
        if not isinstance(named, dict):
            raise CorruptFile(index, "no weight_map object")
        absent = sorted({str(name) for name in named.values()} - {path.name for path in files})
        if absent:
            raise ModelNotFound(f"{folder}: {index.name} names {', '.join(absent[:3])}, which is not there")
    return files


def read_weights(folder: Path) -> dict[str, mx.array]:
    """Every array of every weight file, by name. Truncated or damaged files are `CorruptFile`."""
    weights: dict[str, mx.array] = {}
    files = weight_files(folder)
    if files[0].name == DRAWN and (draw := read_draw(folder)) is not None:
        return draw_weights(draw)
    for path in files:
        _check_safetensors(path)
        try:
            arrays = _as_arrays(mx.load(str(path)))
        except (RuntimeError, ValueError) as error:
            raise CorruptFile(path, " ".join(str(error).split())) from error
        twice = sorted(weights.keys() & arrays.keys())
        if twice:
            raise CorruptFile(path, f"holds {', '.join(twice[:3])}, which another file of the folder holds too")
        weights.update(arrays)
    return weights


def _as_arrays(loaded: object) -> dict[str, mx.array]:
    assert isinstance(loaded, dict)
    return loaded


def _check_safetensors(path: Path) -> None:
    """The header's byte ranges must lie inside the file: MLX reads lazily and would notice much later."""
    size = path.stat().st_size
    with path.open("rb") as f:
        length = int.from_bytes(f.read(8), "little")
        if size < 8 or length > size - 8:
            raise CorruptFile(path, f"truncated: a header of {length} bytes does not fit in {size}")
        try:
            header = json.loads(f.read(length))
        except (json.JSONDecodeError, UnicodeDecodeError) as error:
            raise CorruptFile(path, f"damaged header: {error}") from error
    if not isinstance(header, Mapping):
        raise CorruptFile(path, "damaged header: not an object")
    try:
        entries = [entry["data_offsets"] for name, entry in header.items() if name != "__metadata__"]
        ranges = sorted((int(begin), int(end)) for begin, end in entries)
    except (KeyError, IndexError, TypeError, ValueError) as error:
        raise CorruptFile(path, f"damaged header: an entry without byte offsets ({error!r})") from error
    if any(begin < previous for (_, previous), (begin, _) in itertools.pairwise(ranges)):
        raise CorruptFile(path, "damaged header: arrays share bytes")
    if ranges and 8 + length + ranges[-1][1] != size:
        raise CorruptFile(path, f"{size} bytes, but its header describes {8 + length + ranges[-1][1]}")


def weights_sha256(folder: Path) -> str:
    """sha256 over the names and contents of the weight files. Remembered per (path, size, mtime) in the user cache."""
    files = weight_files(folder)
    stats = [(str(p.resolve()), p.stat().st_size, p.stat().st_mtime_ns) for p in files]
    key = hashlib.sha256(json.dumps(stats).encode()).hexdigest()
    note = cache_folder("sha256") / key
    if note.is_file():
        return note.read_text().strip()
    digest = hashlib.sha256()
    for path in files:
        digest.update(path.name.encode())
        with path.open("rb") as f:
            while block := f.read(1 << 20):
                digest.update(block)
    value = digest.hexdigest()
    write_atomically(note, value.encode())
    return value


def has_tokenizer(folder: Path) -> bool:
    """Whether the folder carries a tokenizer; a model without one takes token ids only."""
    return any((folder / name).is_file() for name in ("tokenizer.json", "tokenizer.model", "tokenizer_config.json"))
