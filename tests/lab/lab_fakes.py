"""Workers, a model folder and a gate of invented numbers, for tests that run a whole experiment in a second."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np

from lab.config import LabConf
from lab.fidelity import FidelityRun, Progress
from oracles.contract import OracleCrashed, StackConfig, TimeProbe, Trace

LIVE = {
    "native": ("native", None, None, 1.0),
    "kv8": ("affine8:g64", 8, 64, 0.28),
    "kv8/4": ("affine8/4:g64", 8, 64, 0.22),
    "kv4": ("affine4:g64", 4, 64, 0.16),
}
LAYERS = 2


class Bytes:
    """A tokenizer whose tokens are bytes."""

    def encode(self, text: str) -> list[int]:
        return list(text.encode())


def model_folder(path: Path) -> Path:
    path.mkdir()
    (path / "config.json").write_text(json.dumps({"model_type": "invented"}), encoding="utf-8")
    (path / "model.safetensors").write_bytes(b"no weights")
    return path


class Machine:
    """The world that fake workers live in: a clock that samples move, and a log of what happened.

    speed, peak: decode tok/s and peak bytes by kv; noise: log sd of a sample; off: kv schemes that never come on;
    crash_at: the sample that kills its worker; broken: sample number -> fields of its document that come out otherwise.
    """

    def __init__(self, key: str, speed: dict[str, float] | None = None, noise: float = 0.01, seed: int = 0) -> None:
        self.key, self.noise = key, noise
        self.speed = dict.fromkeys(LIVE, 10.0) | (speed or {})
        self.peak = dict.fromkeys(LIVE, 10_000_000)
        self.rng = np.random.Generator(np.random.PCG64(seed))
        self.now = 1000.0
        self.log: list[tuple[str, str]] = []
        self.open = 0
        self.samples = 0
        self.off: set[str] = set()
        self.crash_at = -1
        self.broken: dict[int, dict[str, object]] = {}

    def clock(self) -> float:
        return self.now

    def start(self, config: StackConfig) -> FakeWorker:
        return FakeWorker(self, config)


class FakeWorker:
    pids = iter(range(100, 100000))

    def __init__(self, machine: Machine, config: StackConfig) -> None:
        self.machine, self.config = machine, config
        self.kv = config.kv.split(":")[0]
        self.pid = next(self.pids)
        machine.open += 1
        machine.log.append(("start", self.kv))

    def probe(self, probe: TimeProbe) -> Trace:
        machine = self.machine
        machine.log.append(("sample", self.kv))
        machine.samples += 1
        if machine.samples == machine.crash_at:
            raise OracleCrashed("the engine worker died (exit code -9)")
        live = "native" if self.kv in machine.off else self.kv
        scheme, bits, group, share = LIVE[live]
        speed = machine.speed[self.kv] * float(np.exp(machine.rng.normal(0, machine.noise)))
        context = len(probe.token_ids) + probe.max_tokens
        kv_bytes = int(1000 * context * share)
        cache = {"scheme": scheme, "bits": bits, "group_size": group, "kv_bytes": kv_bytes // 2, "offset": context}
        doc = {
            "caches": [cache] * LAYERS,
            "kv_status": scheme if live == self.kv else "native (start not reached)",
            "machine": machine.key,
            "versions": {"mlx": "0"},
            "prompt_tokens": len(probe.token_ids),
            "prefill_s": len(probe.token_ids) / (8 * speed),
            "ttft_s": len(probe.token_ids) / (8 * speed),
            "decode_s": (probe.max_tokens - 1) / speed,
            "decode_tokens": probe.max_tokens - 1,
            "peak_bytes": machine.peak[self.kv],
            "rss_bytes": 20_000_000,
            "kv_bytes": kv_bytes,
            "levers": {},
        }
        machine.now += 3.0
        return Trace(tensors={}, doc=doc | machine.broken.get(machine.samples, {}))

    def close(self) -> None:
        self.machine.open -= 1
        self.machine.log.append(("close", self.kv))


def gate_that_says(status: str, *, kl: float = 1e-4, default: bool = True) -> Callable[..., list[FidelityRun]]:
    """A gate of one run with a fixed answer."""

    def gate(
        conf: LabConf, model: Path, base: StackConfig, candidate: StackConfig, progress: Progress
    ) -> list[FidelityRun]:
        run = conf.profile.kl[0]
        total = run.sequences * (run.length - 1)
        return [FidelityRun(run.protocol, status, default, kl, kl, total, total, "0" * 64, ("invented",), {"a": 1})]

    return gate
