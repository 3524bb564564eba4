"""`frontier doctor`: this machine, what is installed, what will be slow and what cures it."""

from __future__ import annotations

import argparse
import os
import shutil
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

import psutil

from engine import OPENBLAS_INSTALL, machine, openblas_path
from lab.console import Output, size

HELP = "show device, versions, BLAS, compiler, memory, and what will be slow and why"
EXAMPLE = "frontier doctor --json"

DISTRIBUTIONS = ("mlx-frontier", "mlx", "mlx-lm", "mlx-optiq", "transformers", "tokenizers", "numpy")
CUDA_BUILDS = ("mlx-cuda-13", "mlx-cuda-12")
COMPILER_INSTALL = {"linux": "apt-get install g++", "darwin": "xcode-select --install"}
LOW_MEMORY_BYTES = 4 * 10**9
LOW_DISK_BYTES = 5 * 10**9


@dataclass(frozen=True)
class Finding:
    """Something that will be slow or will not work. `cure` is a command, or empty where there is none."""

    what: str
    why: str
    cure: str


def findings(m: Any, *, openblas: str | None, nvidia: bool, memory_free: int, disk_free: int) -> tuple[Finding, ...]:
    """What to expect of machine `m` (a `Machine`). Pure; numbers in the texts: the project's measurements."""
    found = []
    linux_cpu = m.device == "cpu" and m.key.startswith("linux")
    if linux_cpu and openblas is None:
        why = "MLX's own BLAS does float32 products about ten times slower than the system's OpenBLAS"
        found.append(Finding("float32 on this CPU", why, OPENBLAS_INSTALL))
    elif linux_cpu and m.blas == "bundled":
        why = "bundled BLAS is chosen (parity and goldens need it); about ten times slower in float32"
        found.append(Finding("float32 on this CPU", why, "frontier generate --blas openblas ..."))
    if linux_cpu:
        why = "packed weights with 16-bit activations run 10 to 50 times slower than float32 on a CPU"
        found.append(Finding("quantised models in float16 or bfloat16", why, "frontier generate --dtype float32 ..."))
        why = "packed weights do not use the BLAS; an unpacked copy does"
        cure = "frontier convert smollm2-135m-instruct --dequantize --out FOLDER"
        found.append(Finding("quantised models on a CPU", why, cure))
    if m.compiler is None:
        why = "MLX compiles fused operations with g++ at run time and fails without it"
        found.append(Finding("no C++ compiler", why, COMPILER_INSTALL.get(m.key.split("-")[0], "install g++")))
    elif linux_cpu:
        why = "MLX runs the C++ compiler for every new shape of a fused operation, a second or so each"
        found.append(Finding("first tokens of a process", why, ""))
    if m.device == "cuda":
        why = "MLX compiles a kernel for every new shape, seconds each, and keeps it for the machine's later processes"
        found.append(Finding("first use of a shape", why, ""))
        why = "masks and shared products change bits there: rows in packed caches, rings or states run one by one"
        found.append(Finding("batches of such models", why, "frontier bench batch --bits"))
    if m.device == "cpu" and nvidia:
        why = "an NVIDIA GPU is here, but the CPU build of MLX is installed"
        found.append(Finding("everything", why, "make setup EXTRA=cuda"))
    if memory_free < LOW_MEMORY_BYTES:
        found.append(Finding("little free memory", f"{size(memory_free)} available; larger models will swap", ""))
    if disk_free < LOW_DISK_BYTES:
        found.append(Finding("little free disk", f"{size(disk_free)} free in the home folder", ""))
    return tuple(found)


def _version(distribution: str) -> str | None:
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return None


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """No flags of its own."""


def report() -> dict[str, Any]:
    """Everything doctor knows, as a JSON document."""
    m = machine()
    memory_free = psutil.virtual_memory().available
    disk_free = shutil.disk_usage(Path.home()).free
    openblas = openblas_path()
    nvidia = shutil.which("nvidia-smi") is not None
    found = findings(m, openblas=openblas, nvidia=nvidia, memory_free=memory_free, disk_free=disk_free)
    return {
        "machine": m.as_dict(),
        "versions": {name: _version(name) for name in DISTRIBUTIONS},
        "blas": {"in_use": m.blas, "openblas": openblas},
        "memory_available_bytes": memory_free,
        "disk_free_bytes": disk_free,
        "load_1min": os.getloadavg()[0],
        "slow": [asdict(finding) for finding in found],
    }


def accelerator_line(m: Mapping[str, Any]) -> str:
    """The GPU in words: name, memory, driver and MLX's build for it, each where it is known."""
    cuda = next((f"{name} {v}" for name in CUDA_BUILDS if (v := _version(name))), None)
    memory = size(m["accelerator_bytes"]) if m["accelerator_bytes"] else None
    driver = f"driver {m['driver']}" if m["driver"] else None
    return ", ".join(filter(None, (m["accelerator"], memory, driver, cuda)))


def run(args: argparse.Namespace) -> int:
    out, doc = Output(as_json=args.json), report()
    m = doc["machine"]
    rows = [
        ("machine key", m["key"]),
        *([("accelerator", accelerator_line(m))] if m["accelerator"] else []),
        ("device", f"{m['device']}, {m['cpu']}, {m['cores']} cores, load {doc['load_1min']:.2f}"),
        ("system", f"{m['os']}, Python {m['python']}"),
        ("versions", ", ".join(f"{name} {version or 'missing'}" for name, version in doc["versions"].items())),
        ("BLAS", f"{m['blas']} in use; system OpenBLAS: {doc['blas']['openblas'] or 'not installed'}"),
        ("compiler", m["compiler"] or "missing"),
        ("memory", f"{size(m['memory_bytes'])}, {size(doc['memory_available_bytes'])} available"),
        ("disk", f"{size(doc['disk_free_bytes'])} free in the home folder"),
    ]
    for label, text in rows:
        out.line(f"{label:<12} {text}")
    out.line()
    out.line("will be slow:" if doc["slow"] else "nothing here is known to be slow")
    for finding in doc["slow"]:
        out.line(f"  {finding['what']}: {finding['why']}")
        if finding["cure"]:
            out.line(f"    cure: {finding['cure']}")
    out.document(doc)
    return 0
