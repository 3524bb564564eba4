"""BLAS choice, machine key and memory counters."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from engine import errors, machine, memory, openblas_path, use_blas
from engine.backend import cuda_tail, parse_driver

needs_openblas = pytest.mark.skipif(openblas_path() is None, reason="no system OpenBLAS on this machine")


def in_child(code: str, **env: str) -> subprocess.CompletedProcess[str]:
    """Run `code` in a fresh interpreter with `env` on top of this process's environment, less its BLAS choice."""
    base = {k: v for k, v in os.environ.items() if k != "FRONTIER_BLAS"}
    return subprocess.run(
        [sys.executable, "-c", code], env={**base, **env}, capture_output=True, text=True, timeout=120, check=False
    )


def test_an_unknown_blas_lists_the_known() -> None:
    with pytest.raises(errors.InvalidValue, match="auto, bundled, openblas"):
        use_blas("mkl")


def test_the_choice_is_per_process() -> None:
    child = in_child("import mlx.core, engine; engine.use_blas('bundled'); print(engine.machine().blas)")
    assert child.stdout.strip() == "bundled", child.stderr


def test_a_second_choice_is_refused_by_name() -> None:
    code = "import engine; print(engine.use_blas('bundled'), engine.machine().blas); engine.use_blas('openblas')"
    child = in_child(code)
    assert child.stdout.split() == ["bundled", "bundled"]
    expected = "choice is per process" if openblas_path() else "apt-get install"
    assert expected in child.stderr


@needs_openblas
def test_the_environment_is_honoured_whatever_is_imported_first() -> None:
    code = "from engine import load, machine; print(machine().blas, machine().key)"
    child = in_child(code, FRONTIER_BLAS="openblas")
    assert child.stdout.startswith("openblas "), child.stderr
    assert "-cpu-openblas0." in child.stdout


def test_a_bad_environment_is_a_typed_error() -> None:
    child = in_child("import engine; engine.machine()", FRONTIER_BLAS="fast")
    assert "InvalidValue: blas='fast'" in child.stderr


def test_machine_and_memory_describe_this_process() -> None:
    m = machine()
    assert m.key.endswith(m.blas) or m.device != "cpu" or m.blas == "openblas"
    assert m.cores >= 1
    assert m.memory_bytes > 10**8
    counters = memory()
    assert set(counters) == {"active_bytes", "peak_bytes", "cache_bytes", "rss_bytes"}
    assert counters["rss_bytes"] > 10**6


def test_a_gpu_is_named_by_what_mlx_and_its_driver_say() -> None:
    assert cuda_tail({"compute_capability_major": 9, "compute_capability_minor": 0}) == "cuda-sm90"
    assert cuda_tail({}) == "cuda"
    closed = "NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.104.05  Sat Aug 19 01:15:15 UTC 2023"
    opened = "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.159.04  Release Build"
    assert [parse_driver(text) for text in (closed, opened, "")] == ["535.104.05", "580.159.04", None]
