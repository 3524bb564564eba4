"""What this machine can do at best, measured, and what a workload needs at least, counted.

The ceilings are measured in a child process with the BLAS asked, so that they describe the same configuration as the
samples. The floor is a roofline: a decode step reads every weight and the KV cache once, a prefill does two operations
a weight and token. "x % of limit" is the floor's time over the measured time.
"""

from __future__ import annotations

import argparse
import json
import os
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

from engine import errors

BUFFER_BYTES = 256 * 2**20
MATMUL_SIDE = 768
REPEATS = 5
EXPECTED_S = 8.0


@dataclass(frozen=True)
class Ceilings:
    """Best of a few repeats. `copy_gb_s` counts bytes read plus bytes written; GB is 1e9 bytes.

    `fp32_gflop_s`: square fp32 products through MLX in the BLAS named by `blas`.
    """

    copy_gb_s: float
    read_gb_s: float
    fp32_gflop_s: float
    blas: str
    machine: str

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True)
class Artifact:
    """A model folder, counted from its safetensors headers. Packed weights count by what they stand for.

    `artifact_bytes`: the files; `tensor_bytes`: their tensors, scales and biases included; `weights`: logical
    parameters; `embedding_weights`: those of the input embedding; `tied`: the head reuses it.
    """

    artifact_bytes: int
    tensor_bytes: int
    weights: int
    embedding_weights: int
    tied: bool

    @property
    def bpw(self) -> float:
        return self.tensor_bytes * 8 / self.weights

    @property
    def decode_bytes(self) -> int:
        """Weight bytes that one decode step reads: all of them, an untied input embedding apart."""
        if self.tied:
            return self.tensor_bytes
        return round(self.tensor_bytes * (1 - self.embedding_weights / self.weights))

    @property
    def decode_flops(self) -> int:
        """Two operations for each weight of the layers and of the head; attention itself is left out."""
        return 2 * (self.weights - (0 if self.tied else self.embedding_weights))

    @property
    def prefill_flops(self) -> int:
        """Operations per prompt token: the layers only, as logits are needed at the last position alone."""
        return 2 * (self.weights - self.embedding_weights * (1 if self.tied else 2))


def _header(path: Path) -> Mapping[str, Any]:
    with path.open("rb") as f:
        prefix = f.read(8)
        if len(prefix) < 8:
            raise errors.CorruptFile(path, "shorter than a safetensors header")
        (length,) = struct.unpack("<Q", prefix)
        if length > path.stat().st_size - 8:
            raise errors.CorruptFile(path, f"header of {length} bytes does not fit into the file")
        try:
            header: Mapping[str, Any] = json.loads(f.read(length))
        except ValueError as e:
            raise errors.CorruptFile(path, f"header is no JSON: {e}") from e
    return header


def _size(shape: list[int]) -> int:
    total = 1
    for n in shape:
        total *= n
    return total


def read_artifact(folder: Path) -> Artifact:
    """Count a model folder in mlx-lm's format. No tensor is loaded. Errors: `ModelNotFound`, `CorruptFile`."""
    files = sorted(folder.glob("model*.safetensors"))
    if not files:
        raise errors.ModelNotFound(f"{folder}: no model*.safetensors")
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    quantization = config.get("quantization") or config.get("quantization_config") or {}
    entries = {k: v for path in files for k, v in _header(path).items() if k != "__metadata__"}
    weights = embedding = tensor_bytes = 0
    for name, entry in entries.items():
        begin, end = entry["data_offsets"]
        tensor_bytes += end - begin
        stem, _, kind = name.rpartition(".")
        if kind in ("scales", "biases") and f"{stem}.scales" in entries:
            continue
        count = _size(entry["shape"])
        if kind == "weight" and f"{stem}.scales" in entries:
            own = quantization.get(stem)
            group = own["group_size"] if isinstance(own, dict) else quantization["group_size"]
            count = _size(entries[f"{stem}.scales"]["shape"]) * int(group)
        weights += count
        if name.endswith("embed_tokens.weight"):
            embedding = count
    return Artifact(
        artifact_bytes=sum(path.stat().st_size for path in files),
        tensor_bytes=tensor_bytes,
        weights=weights,
        embedding_weights=embedding,
        tied=not any(name.startswith("lm_head.") for name in entries),
    )


@dataclass(frozen=True)
class Floor:
    """The least time of a workload on this machine. `decode_bound`: "memory" or "arithmetic"."""

    decode_s: float
    prefill_token_s: float
    decode_bytes: int
    decode_flops: int
    decode_bound: str
    prefill_bound: str

    @classmethod
    def of(cls, artifact: Artifact, kv_bytes: int, prompt_tokens: int, ceilings: Ceilings) -> Floor:
        """`kv_bytes`: what a decode step reads of the cache; `prompt_tokens`: rows that share one weight read."""
        moved = artifact.decode_bytes + kv_bytes
        read_s = moved / (ceilings.read_gb_s * 1e9)
        work_s = artifact.decode_flops / (ceilings.fp32_gflop_s * 1e9)
        prefill_work_s = artifact.prefill_flops / (ceilings.fp32_gflop_s * 1e9)
        prefill_read_s = artifact.decode_bytes / (ceilings.read_gb_s * 1e9) / max(prompt_tokens, 1)
        return cls(
            decode_s=max(read_s, work_s),
            prefill_token_s=max(prefill_work_s, prefill_read_s),
            decode_bytes=moved,
            decode_flops=artifact.decode_flops,
            decode_bound="memory" if read_s >= work_s else "arithmetic",
            prefill_bound="arithmetic" if prefill_work_s >= prefill_read_s else "memory",
        )

    def decode_percent(self, decode_tok_s: float) -> float:
        return 100 * self.decode_s * decode_tok_s

    def prefill_percent(self, prefill_tok_s: float) -> float:
        return 100 * self.prefill_token_s * prefill_tok_s


def _best(work: Callable[[], object]) -> float:
    """Least wall time in seconds of a few repeats, the first one discarded."""
    work()
    times = []
    for _ in range(REPEATS):
        begin = time.perf_counter()
        work()
        times.append(time.perf_counter() - begin)
    return min(times)


def _in_threads(parts: list[Callable[[], object]]) -> None:
    threads = [threading.Thread(target=part) for part in parts]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def _host_bandwidth(cores: int) -> tuple[float, float]:
    """(copy, read) in GB/s with one thread a core; NumPy releases the interpreter in both loops."""
    import numpy as np

    source = np.ones(BUFFER_BYTES // 4, dtype=np.float32)
    target = np.empty_like(source)
    pairs = list(zip(np.array_split(source, cores), np.array_split(target, cores), strict=True))
    copy_s = _best(lambda: _in_threads([partial(np.copyto, b, a) for a, b in pairs]))
    read_s = _best(lambda: _in_threads([partial(np.dot, a, a) for a, _ in pairs]))
    return 2 * BUFFER_BYTES / copy_s / 1e9, BUFFER_BYTES / read_s / 1e9


def _device_bandwidth() -> tuple[float, float]:
    """(copy, read) in GB/s through MLX, for devices whose memory the host does not reach at full speed."""
    import mlx.core as mx

    source = mx.ones((BUFFER_BYTES // 4,), dtype=mx.float32)
    mx.eval(source)
    copy_s = _best(lambda: mx.eval(source + 1))
    read_s = _best(lambda: mx.eval(source.sum()))
    return 2 * BUFFER_BYTES / copy_s / 1e9, BUFFER_BYTES / read_s / 1e9


def measure_here() -> Ceilings:
    """Measure in this process, with the BLAS it already has."""
    from engine import machine

    here = machine()
    import mlx.core as mx

    copy_gb_s, read_gb_s = _host_bandwidth(here.cores) if here.device == "cpu" else _device_bandwidth()
    side = MATMUL_SIDE if here.device == "cpu" else 4096
    left = mx.random.normal((side, side), key=mx.random.key(1))
    right = mx.random.normal((side, side), key=mx.random.key(2))
    mx.eval(left, right)
    product_s = _best(lambda: mx.eval(left @ right))
    return Ceilings(copy_gb_s, read_gb_s, 2 * side**3 / product_s / 1e9, here.blas, here.key)


def measure(blas: str) -> Ceilings:
    """Measure in a child process with `blas`. A child that dies raises `CeilingsFailed`."""
    command = [sys.executable, "-m", "lab.ceilings", "--blas", blas]
    done = subprocess.run(command, capture_output=True, text=True, env=dict(os.environ), check=False)
    if done.returncode != 0:
        last = done.stderr.strip().splitlines()[-1:] or ["no message"]
        raise CeilingsFailed(f"measuring the ceilings failed with exit code {done.returncode}: {last[0]}")
    return Ceilings(**json.loads(done.stdout.strip().splitlines()[-1]))


class CeilingsFailed(errors.FrontierError):
    """The child process that measures the ceilings died."""

    exit_code = 3


def describe(ceilings: Ceilings) -> str:
    """One line for a person."""
    return (
        f"ceilings: read {ceilings.read_gb_s:.1f} GB/s, copy {ceilings.copy_gb_s:.1f} GB/s, "
        f"fp32 products {ceilings.fp32_gflop_s:.1f} GFLOP/s (BLAS {ceilings.blas})"
    )


def main() -> int:
    from engine import use_blas

    parser = argparse.ArgumentParser(prog="python -m lab.ceilings")
    parser.add_argument("--blas", required=True)
    use_blas(parser.parse_args().blas)
    print(json.dumps(measure_here().as_dict()))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
