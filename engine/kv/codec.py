"""The state of a row's caches as one file: safetensors, with a header that says what may read it."""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, cast

import mlx.core as mx

from engine.errors import CorruptFile, InvalidValue
from engine.kv.base import LayerCache, Saved
from engine.kv.plan import KVPlan
from engine.kv.publish import planned_every

FORMAT = "mlx-frontier-kv"
VERSION = 2
Loaded = tuple[dict[str, mx.array], dict[str, str]]


@dataclass(frozen=True, kw_only=True)
class Identity:
    """What caches belong to. Only a reader whose own is equal may have them.

    plan: what each cache is or becomes, with the request's schedule; every: see `engine.kv.publish`: runs in chunks of
    any size share what does not depend on it.
    """

    model_sha256: str
    dtype: str
    plan: tuple[str, ...]
    every: int

    @classmethod
    def of(cls, model_sha256: str, dtype: str, plan: KVPlan, chunk: int) -> Identity:
        """`chunk`: in which prompts are prefilled."""
        every = planned_every(plan, chunk)
        return cls(model_sha256=model_sha256, dtype=dtype, plan=(str(plan.request), *plan.describe()), every=every)


def write_caches(path: Path, caches: list[LayerCache], identity: Identity) -> None:
    """Write all caches of a row, whole or not at all."""
    saved = [cache.snapshot() for cache in caches]
    arrays = {f"{i}.{j}": a for i, one in enumerate(saved) for j, a in enumerate(one.arrays) if a is not None}
    marks = [[one.kind, list(one.marks), len(one.arrays)] for one in saved]
    header = {"format": FORMAT, "version": VERSION, "identity": asdict(identity), "caches": marks}
    staged = path.with_name(f".{path.name}.{os.getpid()}.safetensors")
    mx.save_safetensors(str(staged), arrays, metadata={FORMAT: json.dumps(header)})
    os.replace(staged, path)


def read_caches(path: Path, plan: KVPlan, identity: Identity) -> list[LayerCache]:
    """The caches that `write_caches` wrote, to go on with.

    Raises `CorruptFile` for a file that is not one, `InvalidValue` for one of another version, model, dtype or plan.
    """
    try:
        arrays, metadata = cast(Loaded, mx.load(str(path), format="safetensors", return_metadata=True))
        header: dict[str, Any] = json.loads(metadata[FORMAT])
    except (RuntimeError, OSError, KeyError, ValueError) as error:
        raise CorruptFile(path, f"not a file of caches: {error}") from error
    if header.get("version") != VERSION:
        raise InvalidValue(f"{path} version", header.get("version"), str(VERSION))
    theirs, ours = header["identity"], json.loads(json.dumps(asdict(identity)))
    for name, value in ours.items():
        if theirs.get(name) != value:
            raise InvalidValue(f"{path} {name}", theirs.get(name), str(value))
    caches = plan.fresh()
    if len(header["caches"]) != len(caches):
        raise CorruptFile(path, f"{len(header['caches'])} caches instead of {len(caches)}")
    for i, (kind, marks, count) in enumerate(header["caches"]):
        held = tuple(arrays.get(f"{i}.{j}") for j in range(count))
        caches[i] = _filled(caches[i], plan, i, Saved(kind, tuple(marks), held), path)
    return caches


def _filled(cache: LayerCache, plan: KVPlan, index: int, saved: Saved, path: Path) -> LayerCache:
    """`cache`, or its converted form where that is what was saved, holding `saved`."""
    cache = plan.empty(index, saved.kind, cache)
    try:
        cache.restore(saved)
        cache.check()
    except (InvalidValue, ValueError) as error:
        raise CorruptFile(path, f"cache {index}: {error}") from error
    return cache
