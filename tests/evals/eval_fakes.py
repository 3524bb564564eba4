"""Stand-ins for workers: logits from a formula, caches as they were asked for or not."""

from __future__ import annotations

from types import TracebackType

import mlx.core as mx
import numpy as np

from oracles.contract import GenerateProbe, OracleRefused, Probe, StackConfig, Trace
from oracles.live import planned_schemes

VOCAB, LAYERS = 40, 3
NOISE = {"native": 0.0, "kv8": 0.01, "kv4": 0.2, "kv4:start=9": 0.2, "mixed": 0.1, "kv2": 1.0}
KV_BYTES: dict[str, int] = {}  # of a layer; 10 where a scheme is not named
SEQUENCES = [[int(t) for t in np.random.default_rng(i).integers(0, VOCAB, 17)] for i in range(6)]


def config(kv: str = "native", stack: str = "engine") -> StackConfig:
    return StackConfig(stack=stack, model="m", kv=kv)


class FakeArm:
    """Attends the asked scheme after the first forward, or `sticks` to a native cache until a position.

    `scale` of the noise depends on the scheme; `shift` is added where a native arm's tokens are cut differently.
    """

    def __init__(self, config: StackConfig, *, sticks: int = 0, shift: float = 0.0, wrong: str | None = None) -> None:
        self.config, self.sticks, self.shift, self.wrong = config, sticks, shift, wrong
        self.probes: list[Probe] = []
        self.asked: Probe | None = None
        self.ready = self.closed = False

    def wait_ready(self) -> None:
        if self.wrong == "refuses":
            raise OracleRefused(f"{self.config.stack}: per-layer mixed KV is not built yet", kind="NotBuilt")
        self.ready = True

    def __enter__(self) -> FakeArm:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.closed = True

    def ask(self, probe: Probe) -> None:
        assert self.asked is None, "one probe at a time"
        self.asked = probe

    def answer(self) -> Trace:
        assert self.asked is not None
        probe, self.asked = self.asked, None
        return self.probe(probe)

    def probe(self, probe: Probe) -> Trace:
        assert self.ready
        self.probes.append(probe)
        ids = probe.token_ids
        scheme = planned_schemes(self.config.kv, LAYERS)[0]
        first = max(self.sticks, probe.head or len(ids) - probe.tail)  # the conversion follows the first forward
        live = ["native" if j < first else scheme for j in range(len(ids))]
        base = np.random.default_rng(ids).normal(size=(len(ids), VOCAB))
        noise = np.random.default_rng([1, *ids]).normal(size=base.shape)
        logits = base + NOISE[self.config.kv.split(":/")[0]] * noise + (self.shift * noise if probe.head > 1 else 0)
        logits[0, 0] += 100  # the first position is never scored: a wrong row would show
        bits = None if scheme == "native" else int(scheme[len("affine")])
        cache = {"scheme": scheme, "bits": bits, "group_size": bits and 64, "offset": len(ids)}
        cache["kv_bytes"] = KV_BYTES.get(self.config.kv, 10)
        if self.wrong == "nan":
            logits[-1, 3] = np.nan
        if self.wrong == "short":
            logits = logits[1:]
        if self.wrong == "end":
            cache = cache | {"scheme": "native"}
        doc = {
            "kv_live": live,
            "caches": [cache] * LAYERS,
            "kv_status": scheme,
            "machine": "a-machine",
            "versions": {"mlx": "0"},
        }
        tensors = {"logits": mx.array(logits.astype(np.float32))} | self.streams(probe, logits)
        return Trace(tensors, doc)

    def streams(self, probe: Probe, logits: np.ndarray) -> dict[str, mx.array]:
        """Residual streams [L, 8] whose relative error grows by a scheme's noise with each layer, none at first; the
        lens of the last one is the logits."""
        found, count = {}, len(probe.token_ids)
        rows = np.random.default_rng([2, *probe.token_ids]).choice([-1.0, 1.0], size=(count, 8))
        scale = NOISE[self.config.kv.split(":/")[0]]
        for i in range(-1, LAYERS):
            if "layers" in probe.want:
                found[f"layer.{i}"] = mx.array((rows * (1 + scale * (i + 1))).astype(np.float32))
            if probe.lens:
                seen = logits[count - probe.lens :] * (i + 2) / (LAYERS + 1)
                found[f"lens.{i}"] = mx.array(seen.astype(np.float32))
        return found


class EngineHere(FakeArm):
    """The engine's own stack in this process: no fake but for the process boundary."""

    def wait_ready(self) -> None:
        from oracles.engine_adapter import load

        self.stack = load(self.config)
        self.ready = True

    def probe(self, probe: Probe) -> Trace:
        return self.stack.generate(probe) if isinstance(probe, GenerateProbe) else self.stack.probe(probe)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.ready:
            self.stack.close()
