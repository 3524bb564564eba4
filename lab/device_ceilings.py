"""What a device can do at best, measured in its own process, and what a drawn model needs of it, counted.

A decode step reads every weight and the caches once; a prefill does two operations a weight and token. Rates are
measured with buffers far above any cache of the device, and in the dtype that models have there.
"""

from __future__ import annotations

import argparse
import json
import math
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from engine import Draw, errors, read_draw
from lab.ceilings import Artifact, CeilingsFailed

BUFFER_BYTES, SIDE = 4 * 2**30, 8192
TRIAL_BYTES, TRIAL_SIDE = 8 * 2**20, 128  # on a CPU, and to try things out
REPEATS = 8


@dataclass(frozen=True)
class DeviceCeilings:
    """The best of a few repeats; GB is 1e9 bytes, `copy_gb_s` counts bytes read plus bytes written."""

    copy_gb_s: float
    read_gb_s: float
    bf16_tflop_s: float

    @property
    def bytes_per_s(self) -> float:
        """What weights can be read at: the better of the two."""
        return 1e9 * max(self.copy_gb_s, self.read_gb_s)


def count(draw: Draw, *, tied: bool) -> Artifact:
    """A drawn model in numbers; packed weights count by what they stand for."""
    packed = {name.removesuffix("scales") for name in draw.tensors if name.endswith(".scales")}
    weights = embedding = 0
    for name, (_, shape) in draw.tensors.items():
        if name.endswith((".scales", ".biases")) and name.rpartition(".")[0] + "." in packed:
            continue
        values = math.prod(shape)
        if name.removesuffix("weight") in packed:
            values = values * 32 // draw.bits
        weights += values
        embedding += values if name.endswith("embed_tokens.weight") else 0
    total = sum(draw.bytes_of(name) for name in draw.tensors)
    return Artifact(artifact_bytes=total, tensor_bytes=total, weights=weights, embedding_weights=embedding, tied=tied)


def read_counts(folder: Path) -> dict[str, Any]:
    """decode_bytes and prefill_flops of a drawn folder. Errors: `InvalidValue` for another folder."""
    draw = read_draw(folder)
    if draw is None:
        raise errors.InvalidValue("folder", folder.name, "one whose weights are drawn")
    found = count(draw, tied=not any(name.startswith("lm_head.") for name in draw.tensors))
    return {"decode_bytes": found.decode_bytes, "prefill_flops": found.prefill_flops, "weights": found.weights}


def measure() -> DeviceCeilings:
    """Measure in a child process, which gives its memory back. Errors: `CeilingsFailed`."""
    command = [sys.executable, "-m", "lab.device_ceilings"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        last = done.stderr.strip().splitlines()[-1:] or ["no message"]
        raise CeilingsFailed(f"measuring the device failed with exit code {done.returncode}: {last[0]}")
    return DeviceCeilings(**json.loads(done.stdout.strip().splitlines()[-1]))


def measure_here() -> DeviceCeilings:
    """Measure in this process."""
    from engine import machine

    small = machine().device == "cpu"
    import mlx.core as mx

    source = mx.ones(((TRIAL_BYTES if small else BUFFER_BYTES) // 4,), dtype=mx.float32)
    side = TRIAL_SIDE if small else SIDE
    left, right = (mx.random.normal((side, side), key=mx.random.key(i)).astype(mx.bfloat16) for i in (1, 2))
    mx.eval(source, left, right)
    copy_s, read_s = _best(lambda: mx.eval(source + 1)), _best(lambda: mx.eval(source.sum()))
    product_s = _best(lambda: mx.eval(left @ right))
    return DeviceCeilings(
        2 * source.nbytes / copy_s / 1e9, source.nbytes / read_s / 1e9, 2 * side**3 / product_s / 1e12
    )


def _best(work: Callable[[], object]) -> float:
    """Least seconds of a few repeats; the first two warm up."""
    times = []
    for i in range(2 + REPEATS):
        begin = time.perf_counter()
        work()
        if i > 1:
            times.append(time.perf_counter() - begin)
    return min(times)


def main() -> int:
    argparse.ArgumentParser(prog="python -m lab.device_ceilings").parse_args()
    print(json.dumps(asdict(measure_here())))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
