"""`frontier models explain`: what a folder's config.json resolves to, in words, and what of it nobody read."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, fields, is_dataclass
from pathlib import Path
from typing import Any

from engine import FAMILIES, read_architecture, resolve_model
from lab.console import Output, progress_callback
from lab.modules import family_file


def changed(spec: Any) -> dict[str, Any]:
    """The fields of a spec that are not at their default."""
    found = {}
    for field in fields(spec):
        value = spec.__dict__[field.name]
        default = field.default_factory() if field.default_factory is not MISSING else field.default
        if default is MISSING or value != default:
            found[field.name] = value
    return found


def words(value: Any) -> str:
    """A spec as `Name(field value, ...)`, defaults left out."""
    if is_dataclass(value) and not isinstance(value, type):
        inner = ", ".join(f"{name} {words(part)}" for name, part in changed(value).items())
        return f"{type(value).__name__}({inner})"
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{key}: {words(part)}" for key, part in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(words, value)) + "]"
    return _named(value) if callable(value) else str(value)


def plain(value: Any) -> Any:
    """A spec as JSON; a spec in a spec carries its type as "is"."""
    if is_dataclass(value) and not isinstance(value, type):
        return {"is": type(value).__name__, **{name: plain(part) for name, part in changed(value).items()}}
    if isinstance(value, Mapping):
        return {str(key): plain(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [plain(part) for part in value]
    return value if value is None or isinstance(value, str | int | float | bool) else _named(value)


def _named(value: Callable[..., Any]) -> str:
    return value.__qualname__ if isinstance(value, type) or type(value).__name__ == "function" else repr(value)


def kinds(layers: Sequence[Any]) -> list[tuple[list[int], Any]]:
    """The different layers, in order of appearance, each with the numbers of the layers that are so."""
    found: list[tuple[list[int], Any]] = []
    for i, layer in enumerate(layers):
        for numbers, known in found:
            if known == layer:
                numbers.append(i)
                break
        else:
            found.append(([i], layer))
    return found


def ranges(numbers: Sequence[int]) -> str:
    """Ascending numbers as `0-4, 6-10, 12`."""
    parts = []
    for _, run in itertools.groupby(enumerate(numbers), key=lambda pair: pair[1] - pair[0]):
        block = [number for _, number in run]
        parts.append(str(block[0]) if len(block) == 1 else f"{block[0]}-{block[-1]}")
    return ", ".join(parts)


def explain(model: str, profile: str, out: Output) -> int:
    """Print one folder's graph. Exit code 1 where loading would refuse its config.json.

    Errors: what `read_architecture` raises.
    """
    with progress_callback() as bar:
        folder = Path(resolve_model(model, progress=bar))
    reading = read_architecture(folder, profile)
    spec, found, unread = reading.spec, reading.profile, reading.unread
    file = family_file(found.family, FAMILIES)
    out.line(f"{folder}\nmodel_type {reading.config['model_type']}, {found.kind} profile {found.name}, read by {file}")
    if found.kind == "universal":
        out.line("  the universal reader: nothing has checked that this model_type is llama-like")
    if found.dtypes is not None:
        out.line(f"  dtypes: {', '.join(found.dtypes)} ({found.why})")
    count = len(spec.layers) * spec.loops
    out.line(f"vocabulary {spec.vocab}, dimension {spec.dim}, {count} layers, {len(spec.caches)} caches\n")
    out.line(f"stem: {words(spec.stem)}")
    layers = kinds(spec.layers)
    for numbers, layer in layers:
        out.line(f"layers {ranges(numbers)}: {type(layer).__name__}")
        for name, part in changed(layer).items():
            out.line(f"  {name}: {words(part)}")
    shown = ("vocab", "dim", "family", "layers", "stem", "head")
    rest = {name: part for name, part in changed(spec).items() if name not in shown}
    for name, part in (rest | {"head": spec.head}).items():
        out.line(f"{name}: {words(part)}")
    out.line(f"\nconfig.json, bookkeeping: {', '.join(unread.bookkeeping) or 'none'}")
    for label, keys in (("unread", unread.listed), ("REFUSED", unread.refused)):
        for key in keys:
            out.line(f"config.json, {label}: {key.key} = {words(key.value)}: {key.why}")
    if unread.refused:
        out.line("loading refuses this config.json; without the refused keys the folder loads as mlx-lm loads it")
    out.document(
        {
            "path": str(folder),
            "model_type": reading.config["model_type"],
            "profile": {"kind": found.kind, "name": found.name, "family": file, "dtypes": plain(found.dtypes)},
            "layers": [{"layers": numbers, "spec": plain(layer)} for numbers, layer in layers],
            "spec": {name: plain(part) for name, part in changed(spec).items() if name != "layers"},
            "caches": [plain(cache) for cache in spec.caches],
            "config": {
                "bookkeeping": list(unread.bookkeeping),
                "unread": [plain(key) for key in unread.listed],
                "refused": [plain(key) for key in unread.refused],
            },
        }
    )
    return 1 if unread.refused else 0
