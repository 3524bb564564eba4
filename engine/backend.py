"""Device, BLAS, memory counters and machine key. The only module that asks what platform this is."""

from __future__ import annotations

import ctypes
import ctypes.util
import functools
import os
import platform
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from importlib import metadata
from pathlib import Path

import psutil

from engine.config import BLAS
from engine.errors import InvalidValue, MissingTool

BLAS_ENV = "FRONTIER_BLAS"
NVIDIA_VERSION = Path("/proc/driver/nvidia/version")
OPENBLAS_INSTALL = "apt-get install libopenblas0-pthread"
_chosen: str | None = None


@dataclass(frozen=True)
class Machine:
    """What a number measured here depends on. `key` names goldens and reports.

    accelerator: the GPU's name, "" on a CPU; accelerator_bytes: its own memory, driver: its version, where there are.
    """

    key: str
    os: str
    arch: str
    device: str
    blas: str
    cpu: str
    cores: int
    memory_bytes: int
    mlx: str
    python: str
    compiler: str | None
    accelerator: str = ""
    accelerator_bytes: int | None = None
    driver: str | None = None

    def as_dict(self) -> dict[str, object]:
        return asdict(self)


def _linux_cpu() -> bool:
    return sys.platform.startswith("linux") and not has_cuda()


def has_cuda() -> bool:
    """True when the CUDA build of MLX is the one installed."""
    return any(_version(f"mlx-cuda-{n}") for n in (12, 13))


def _version(distribution: str) -> str | None:
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return None


def openblas_path() -> str | None:
    """The system's OpenBLAS, or None."""
    return ctypes.util.find_library("openblas") if _linux_cpu() else None


def use_blas(name: str) -> str:
    """Choose the BLAS of this process; call before anything imports MLX. Returns "bundled" or "openblas".

    "auto" takes the system's OpenBLAS where it is present. Off the Linux CPU the choice has no meaning
    and only "auto" and "bundled" are accepted. Child processes inherit the choice through the environment.
    """
    global _chosen
    if name not in BLAS:
        raise InvalidValue("blas", name, BLAS)
    library = openblas_path()
    wanted = ("openblas" if library else "bundled") if name == "auto" else name
    if wanted == "openblas" and library is None:
        if not _linux_cpu():
            raise InvalidValue("blas", name, "auto, bundled (OpenBLAS is a choice on the Linux CPU only)")
        raise MissingTool(f"blas=openblas, but no system OpenBLAS is installed; run: {OPENBLAS_INSTALL}")
    if _chosen is None and "mlx.core" in sys.modules:
        _chosen = "bundled"
    if _chosen is not None and _chosen != wanted:
        raise InvalidValue("blas", wanted, f"{_chosen} (MLX is already loaded with it; the choice is per process)")
    if _chosen is None and wanted == "openblas":
        ctypes.CDLL(library, mode=ctypes.RTLD_GLOBAL)
    _chosen = wanted
    os.environ[BLAS_ENV] = wanted
    return wanted


def blas() -> str:
    """The BLAS of this process; fixes it to what the environment asks, else "bundled"."""
    return _chosen if _chosen is not None else use_blas(os.environ.get(BLAS_ENV, "bundled"))


def _cpu_name() -> str:
    if sys.platform.startswith("linux"):
        with open("/proc/cpuinfo", encoding="utf-8") as f:
            for line in f:
                if line.startswith("model name"):
                    return line.split(":", 1)[1].strip()
    return platform.processor() or platform.machine()


def _openblas_tag() -> str:
    """Version and kernel set of the loaded OpenBLAS, for instance `openblas0.3.21-haswell`."""
    library = ctypes.CDLL(openblas_path())
    library.openblas_get_config.restype = ctypes.c_char_p
    library.openblas_get_corename.restype = ctypes.c_char_p
    version = re.search(r"OpenBLAS (\S+)", library.openblas_get_config().decode())
    core = library.openblas_get_corename().decode().lower()
    return f"openblas{version.group(1) if version else ''}-{core}"


def compiler() -> str | None:
    """The C++ compiler that MLX's CPU fusion calls at run time, or None."""
    return shutil.which("g++") or shutil.which("c++")


def parse_driver(text: str) -> str | None:
    """The version in what the kernel module of an NVIDIA driver says of itself."""
    found = re.search(r"Kernel Module\D*\s(\d+(?:\.\d+)+)", text.replace("x86_64", "").replace("aarch64", ""))
    return found[1] if found else None


def _driver() -> str | None:
    """Of the NVIDIA GPU: from the kernel, else from nvidia-smi."""
    if NVIDIA_VERSION.is_file():
        return parse_driver(NVIDIA_VERSION.read_text(encoding="utf-8"))
    if shutil.which("nvidia-smi") is None:
        return None
    command = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.stdout.split("\n")[0].strip() or None if done.returncode == 0 else None


def cuda_tail(info: Mapping[str, str | int]) -> str:
    """The end of a CUDA machine's key, from what MLX says of the device: `cuda-sm90`."""
    major, minor = info.get("compute_capability_major"), info.get("compute_capability_minor")
    return f"cuda-sm{major}{minor}" if major is not None else "cuda"


@functools.cache
def machine() -> Machine:
    """Describe this machine. Loads MLX, and so fixes the BLAS."""
    name = blas()
    import mlx.core as mx

    arch = platform.machine().lower()
    system = {"linux": "linux", "darwin": "darwin"}.get(sys.platform, sys.platform)
    info: Mapping[str, str | int] = {}
    if mx.metal.is_available():
        info = mx.device_info()
        chip = re.sub(r"[^a-z0-9]+", "-", str(info.get("device_name", "metal")).lower()).strip("-")
        device, tail = "metal", chip
    elif has_cuda():
        info = mx.device_info()
        device, tail = "cuda", cuda_tail(info)
    else:
        device, tail = "cpu", "cpu-" + (_openblas_tag() if name == "openblas" else "bundled")
    return Machine(
        key=f"{system}-{arch}-{tail}",
        os=f"{platform.system()} {platform.release()}",
        arch=arch,
        device=device,
        blas=name if device == "cpu" else "none",
        cpu=_cpu_name(),
        cores=len(os.sched_getaffinity(0)) if sys.platform.startswith("linux") else os.cpu_count() or 1,
        memory_bytes=psutil.virtual_memory().total,
        mlx=str(metadata.version("mlx")),
        python=platform.python_version(),
        compiler=compiler(),
        accelerator=str(info.get("device_name", "")),
        accelerator_bytes=int(info["total_memory"]) if "total_memory" in info else None,
        driver=_driver() if device == "cuda" else None,
    )


def memory() -> dict[str, int]:
    """Allocator counters in bytes (active, peak, cache) and the process's resident set."""
    blas()
    import mlx.core as mx

    return {
        "active_bytes": mx.get_active_memory(),
        "peak_bytes": mx.get_peak_memory(),
        "cache_bytes": mx.get_cache_memory(),
        "rss_bytes": psutil.Process().memory_info().rss,
    }


def raise_wired_limit() -> int | None:
    """On Metal, let weights stay resident up to the recommended working set. Returns the old limit, else None."""
    blas()
    import mlx.core as mx

    if not mx.metal.is_available():
        return None
    return int(mx.set_wired_limit(int(mx.device_info()["max_recommended_working_set_size"])))


def restore_wired_limit(old: int | None) -> None:
    """Undo `raise_wired_limit`; `old` is what it returned."""
    if old is not None:
        import mlx.core as mx

        mx.set_wired_limit(old)
