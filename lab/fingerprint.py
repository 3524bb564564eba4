"""What a number depends on besides the arm: machine, versions, BLAS, compiler, lock, code, environment.

Two arms are paired only if everything about them is equal but the declared lever.
"""

from __future__ import annotations

import hashlib
import os
import platform
import re
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from importlib import metadata
from pathlib import Path
from typing import Any

import psutil

from engine import errors, machine
from oracles.contract import StackConfig, Trace
from oracles.live import is_state

ROOT = Path(__file__).resolve().parents[1]
DISTRIBUTIONS = ("mlx", "mlx-lm", "mlx-optiq", "mlx-frontier", "numpy", "safetensors", "tokenizers", "transformers")
VARIABLES = (
    "FRONTIER_BLAS",
    "LD_PRELOAD",
    "MALLOC_ARENA_MAX",
    "MALLOC_CONF",
    "MLX_DISABLE_COMPILE",
    "MLX_MAX_MB_PER_BUFFER",
    "MLX_MAX_OPS_PER_BUFFER",
    "OMP_NUM_THREADS",
    "OPENBLAS_CORETYPE",
    "OPENBLAS_NUM_THREADS",
    "PYTHONHASHSEED",
)
ARM_PACKAGES = ("engine", "oracles")
COMMIT_FILE = Path("lab/data/commit.txt")
BOOT_FILE = Path("/proc/sys/kernel/random/boot_id")


class NotPairable(errors.FrontierError):
    """Two arms differ in more than the declared lever; their difference would have no single cause."""


@dataclass(frozen=True)
class Code:
    """The source: commit, whether files differ from it, and the hash of how. A wheel has no commit.

    arms_sha256: of the files that run in a worker, whatever the commit: two sessions with an equal one ran the same.
    """

    git_sha: str
    dirty: bool
    diff_sha256: str
    arms_sha256: str = ""

    def __str__(self) -> str:
        return f"{self.git_sha[:12]}{' (dirty)' if self.dirty else ''}"


@dataclass(frozen=True)
class Fingerprint:
    """One machine, environment and code. `boot` names the boot, so that a confirmation can ask for another."""

    machine_key: str
    machine: Mapping[str, Any]
    python: str
    packages: Mapping[str, str]
    compiler: str
    lock_sha256: str
    variables: Mapping[str, str]
    code: Code
    boot: str


def _git(*words: str) -> bytes:
    return subprocess.run(["git", "-C", str(ROOT), *words], capture_output=True, check=True).stdout


def arms_sha256(root: Path = ROOT) -> str:
    """Hash of the names and contents of the source files of `ARM_PACKAGES`."""
    digest = hashlib.sha256()
    for package in ARM_PACKAGES:
        for path in sorted((root / package).rglob("*")):
            if path.suffix in (".py", ".json", ".metal") and path.is_file():
                digest.update(str(path.relative_to(root)).encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()


def read_code(root: Path = ROOT) -> Code:
    """The state of the source tree. New files count as a difference, by name and content. An archive that git made
    of a commit is that commit; what was changed in it since is seen in `arms_sha256` alone."""
    if not (root / ".git").exists():
        stamp = (root / COMMIT_FILE).read_text(encoding="utf-8").strip()  # filled in by `git archive`
        known = re.fullmatch(r"[0-9a-f]{40}", stamp)
        return Code(stamp if known else f"wheel {_version('mlx-frontier')}", False, "", arms_sha256(root))
    diff = _git("diff", "HEAD", "--binary")
    new = _git("ls-files", "--others", "--exclude-standard", "-z").split(b"\0")
    digest = hashlib.sha256(diff)
    for name in filter(None, new):
        path = root / os.fsdecode(name)
        digest.update(name + b"\0" + (path.read_bytes() if path.is_file() else b""))
    dirty = bool(diff) or any(new)
    commit = _git("rev-parse", "HEAD").decode().strip()
    return Code(commit, dirty, digest.hexdigest() if dirty else "", arms_sha256(root))


def _version(name: str) -> str:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return "not installed"


def _compiler(path: str | None) -> str:
    if path is None:
        return "none"
    done = subprocess.run([path, "--version"], capture_output=True, text=True, check=True)
    return done.stdout.splitlines()[0]


def take() -> Fingerprint:
    """The fingerprint of here and now. Loads MLX, and so fixes the BLAS."""
    here = machine()
    lock = ROOT / "requirements.lock"
    return Fingerprint(
        machine_key=here.key,
        machine=here.as_dict(),
        python=platform.python_version(),
        packages={name: _version(name) for name in DISTRIBUTIONS},
        compiler=_compiler(here.compiler),
        lock_sha256=hashlib.sha256(lock.read_bytes()).hexdigest() if lock.is_file() else "",
        variables={name: os.environ[name] for name in VARIABLES if name in os.environ},
        code=read_code(),
        boot=BOOT_FILE.read_text().strip() if BOOT_FILE.is_file() else str(int(psutil.boot_time())),
    )


@dataclass(frozen=True)
class ArmPrint:
    """What one worker says of itself, and what it was asked to be. `counts`: the tokens of its first sample."""

    config: StackConfig
    machine_key: str
    versions: Mapping[str, str]
    counts: Mapping[str, int] = field(default_factory=dict)

    @classmethod
    def of(cls, config: StackConfig, trace: Trace) -> ArmPrint:
        doc = trace.doc
        counts = {name: int(doc[name]) for name in ("prompt_tokens", "decode_tokens") if name in doc}
        offsets = [cache["offset"] - doc.get("ahead", 0) for cache in doc["caches"] if not is_state(cache)]
        return cls(
            config, str(doc["machine"]), dict(doc["versions"]), counts | {"cache_tokens": max(offsets, default=0)}
        )


def stated(config: StackConfig) -> dict[str, Any]:
    """What a worker was asked to be, by the names that experiments use."""
    found = asdict(config)
    own = dict(found.pop("levers")) | dict(found.pop("sampling"))
    return found | {"mlx_compile": found.pop("compile")} | own


def platform_of(machine_key: str) -> str:
    """A machine key without its BLAS: `linux-x86_64-cpu`."""
    return "-".join(machine_key.split("-")[:3])


def require_pairable(base: ArmPrint, candidate: ArmPrint, lever: Sequence[str]) -> None:
    """Raise `NotPairable` if the two differ in anything but `lever` (names of `lab.arms.ArmConf`'s fields).

    Another BLAS makes another machine key, and another stack has none of the engine's levers. Versions are compared
    where both sides state one: a stack says only its own.
    """
    left, right = stated(base.config), stated(candidate.config)
    compared = left.keys() & right.keys() if "stack" in lever else left.keys() | right.keys()
    problems = [
        f"{k}: {left.get(k)!r} and {right.get(k)!r}" for k in compared if k not in lever and left.get(k) != right.get(k)
    ]
    keys = (base.machine_key, candidate.machine_key)
    same = platform_of(keys[0]) == platform_of(keys[1]) if "blas" in lever else keys[0] == keys[1]
    if not same:
        problems.append(f"machine: {base.machine_key} and {candidate.machine_key}")
    for mine, other in ((base.versions, candidate.versions), (base.counts, candidate.counts)):
        problems += [f"{k}: {mine[k]} and {other[k]}" for k in mine.keys() & other.keys() if mine[k] != other[k]]
    if problems:
        declared = ", ".join(lever) or "none"
        raise NotPairable(
            f"the arms differ in more than the declared lever ({declared}): {'; '.join(sorted(problems))}"
        )


def model_sha256(folder: Path) -> str:
    """Hash of the names, sizes and hashes of a model folder's config and weights."""
    digest = hashlib.sha256()
    for path in sorted([*folder.glob("model*.safetensors"), folder / "config.json"]):
        digest.update(path.name.encode() + b"\0")
        with open(path, "rb") as file:
            digest.update(hashlib.file_digest(file, "sha256").digest())
    return digest.hexdigest()
