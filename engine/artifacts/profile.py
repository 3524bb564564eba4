"""Which reader an artifact gets: its exact profile, else its family's file, else, asked for by name, the universal one.

A profile says how a folder is read and nothing of how it runs: KV, sampling and batching are chosen apart from it.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from engine.artifacts.cache import cache_folder, write_atomically
from engine.artifacts.checkpoint import read_json, weight_files
from engine.config import PROFILES
from engine.errors import CorruptFile, InvalidValue, ProfileMismatch, UnknownModelType

# The llama-like reader; nothing has checked it against another implementation for the model at hand.
UNIVERSAL_FAMILY = "llama"


@dataclass(frozen=True, kw_only=True)
class Exact:
    """One artifact. `tensor_bytes`: of all its arrays, a quick look before they are hashed.

    `dtypes`: the dtypes that it may be loaded in, `why` no others.
    """

    name: str
    family: str
    tensor_bytes: int
    dtypes: tuple[str, ...]
    why: str


@dataclass(frozen=True, kw_only=True)
class Profile:
    """How a folder is read. `family`: the model_type whose file reads its config.json. `dtypes`: None allows all."""

    kind: Literal["exact", "family", "universal"]
    name: str
    family: str
    dtypes: tuple[str, ...] | None = None
    why: str = ""

    def check_dtype(self, dtype: str) -> None:
        """Raise `InvalidValue` for a dtype that the artifact does not allow."""
        if self.dtypes is not None and dtype not in self.dtypes:
            raise InvalidValue("dtype", dtype, f"{', '.join(self.dtypes)} ({self.name}: {self.why})")


_GGUF = "a GGUF import holds values that 16 bits would change"

# (sha256 of config.json, sha256 of the tensors) -> the artifact.
EXACT: dict[tuple[str, str], Exact] = {
    (
        "eef0d265f715920aa6bd7b62659c3f8f80b90fef22ec4486dc3a0a7b08637212",
        "f898a2c957ee643b15bc10f60f65b9233d3f37a87c7c8b8384cfde97709837ea",
    ): Exact(
        name="smollm2-135m-instruct", family="llama", tensor_bytes=115156224, dtypes=("auto", "float32"), why=_GGUF
    ),
    (
        "eb2a0c6895805d3ef3ee0e5a31bdbdacef609bce36ca58d1f756be9cb00d5373",
        "144c4f6518e28433a9993f00051d7758725abb4934905beaa3006046436e0ce5",
    ): Exact(
        name="smollm2-135m-instruct-fp32", family="llama", tensor_bytes=538060032, dtypes=("auto", "float32"), why=_GGUF
    ),
}


def resolve_profile(folder: Path, config: Mapping[str, Any], families: Collection[str], asked: str = "auto") -> Profile:
    """The profile of a folder. `config`: its config.json; `families`: the model_types that have a file.

    asked: "auto" takes exact, then family; "family" leaves exact profiles out; "universal" reads a model_type that no
    family has as if it were llama. Errors: `ProfileMismatch` (the tensors of an exact profile, another config.json),
    `UnknownModelType`, `InvalidValue`.
    """
    if asked not in PROFILES:
        raise InvalidValue("profile", asked, PROFILES)
    model_type = config.get("model_type")
    if not isinstance(model_type, str):
        raise InvalidValue("config.json model_type", model_type, "the name of an architecture")
    known = model_type in families
    if asked == "universal":
        if known:
            raise InvalidValue("profile", asked, f"auto or family: {model_type} has a family file of its own")
        return Profile(kind="universal", name=UNIVERSAL_FAMILY, family=UNIVERSAL_FAMILY)
    exact = _exact(folder) if asked == "auto" else None
    if exact is not None:
        return Profile(kind="exact", name=exact.name, family=exact.family, dtypes=exact.dtypes, why=exact.why)
    if not known:
        raise UnknownModelType(model_type, families)
    return Profile(kind="family", name=model_type, family=model_type)


def _exact(folder: Path) -> Exact | None:
    """The exact profile of these tensors, if there is one."""
    size = tensor_bytes(folder)
    if size not in {entry.tensor_bytes for entry in EXACT.values()}:
        return None
    tensors, config = tensors_sha256(folder), config_sha256(folder)
    if (config, tensors) in EXACT:
        return EXACT[config, tensors]
    for (wanted, known), entry in EXACT.items():
        if known == tensors:
            raise ProfileMismatch(folder, entry.name, config, wanted)
    return None


def config_sha256(folder: Path) -> str:
    """sha256 of config.json's values; spacing and the order of keys do not count."""
    return hashlib.sha256(json.dumps(read_json(folder / "config.json"), sort_keys=True).encode()).hexdigest()


def tensor_bytes(folder: Path) -> int:
    """Bytes of all arrays of the weight files, from their headers; 0 without weight files."""
    if not any(folder.glob("model*.safetensors")):
        return 0
    return sum(end - start for path in weight_files(folder) for _, _, _, start, end in _header(path))


def tensors_sha256(folder: Path) -> str:
    """sha256 over name, dtype, shape and content of every array, by name: neither sharding nor order counts.

    Remembered per (path, size, mtime) in the user cache.
    """
    files = weight_files(folder)
    stats = [(str(p.resolve()), p.stat().st_size, p.stat().st_mtime_ns) for p in files]
    note = cache_folder("sha256") / ("tensors-" + hashlib.sha256(json.dumps(stats).encode()).hexdigest())
    if note.is_file():
        return note.read_text().strip()
    entries = sorted((entry, path) for path in files for entry in _header(path))
    digest = hashlib.sha256()
    for (name, dtype, shape, start, end), path in entries:
        digest.update(json.dumps([name, dtype, shape]).encode())
        with path.open("rb") as f:
            f.seek(start)
            left = end - start
            while left:
                block = f.read(min(left, 1 << 20))
                if not block:
                    raise CorruptFile(path, f"truncated: {name} ends {left} bytes too early")
                digest.update(block)
                left -= len(block)
    value = digest.hexdigest()
    write_atomically(note, value.encode())
    return value


def _header(path: Path) -> list[tuple[str, str, list[int], int, int]]:
    """(name, dtype, shape, first byte, byte after the last) of each array of a safetensors file."""
    with path.open("rb") as f:
        length = int.from_bytes(f.read(8), "little")
        if length > path.stat().st_size - 8:
            raise CorruptFile(path, f"truncated: a header of {length} bytes does not fit")
        try:
            header = json.loads(f.read(length))
            return [
                (name, entry["dtype"], entry["shape"], *(8 + length + int(at) for at in entry["data_offsets"]))
                for name, entry in header.items()
                if name != "__metadata__"
            ]
        except (json.JSONDecodeError, UnicodeDecodeError, AttributeError, KeyError, TypeError, ValueError) as error:
            raise CorruptFile(path, f"damaged header: {error!r}") from error
