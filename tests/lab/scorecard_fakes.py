"""Stand-ins for workers and a whole scorecard made of invented numbers, for tests of the measuring and of the page."""

from __future__ import annotations

from dataclasses import replace

import mlx.core as mx
import numpy as np

from lab.ceilings import Artifact, Ceilings
from lab.quality import Quality, run_quality
from lab.recipes import PROFILES, RECIPES, Pool, Profile, Sample, take_samples, warm_up
from lab.scorecard import Provenance, Scorecard, StageResult, build_rows
from oracles.contract import OracleRefused, Probe, StackConfig, TimeProbe, Trace
from oracles.live import require_scheme

VOCAB, LAYERS = 50, 2
SPEED = {"engine": 12.0, "mlx-lm": 11.5, "optiq": 11.0}
LIVE = {"native": ("native", None, 1.0), "kv8": ("affine8:g64", 8, 0.31), "kv4": ("affine4:g64", 4, 0.19)}
PROFILE = replace(PROFILES["quick"], prompt_tokens=8, kl_length=12, kl_sequences=5, kl_check=2)
SEQUENCES = [list(np.random.default_rng(i).integers(0, VOCAB, 13)) for i in range(5)]


class FakeWorker:
    """Answers from a formula. `log` collects (event, recipe); `twins` stacks return mlx-lm's bits."""

    open_count = 0

    def __init__(self, config: StackConfig, log: list[tuple[str, str]], twins: tuple[str, ...] = ("engine",)) -> None:
        self.config, self.log, self.twins = config, log, twins
        self.name = f"{config.stack} {config.kv}"
        self.calls = 0
        log.append(("start", self.name))

    def probe(self, probe: Probe | TimeProbe) -> Trace:
        self.calls += 1
        scheme, bits, share = LIVE[self.config.kv]
        cache = {"scheme": scheme, "bits": bits, "group_size": bits and 64, "kv_bytes": int(2**20 * share), "offset": 9}
        doc: dict[str, object] = {
            "caches": [cache] * LAYERS,
            "kv_status": scheme,
            "prompt_tokens": len(probe.token_ids),
        }
        if isinstance(probe, TimeProbe):
            self.log.append(("time", self.name))
            rng = np.random.default_rng([len(self.log), 7])
            speed = SPEED[self.config.stack] * float(np.exp(rng.normal(0, 0.03))) * (0.94 if bits else 1.0)
            doc |= {"prefill_s": len(probe.token_ids) / (8 * speed), "decode_s": (probe.max_tokens - 1) / speed}
            doc |= {"ttft_s": doc["prefill_s"], "decode_tokens": probe.max_tokens - 1, "rss_bytes": 900 * 2**20}
            doc |= {"peak_bytes": int(2**20 * (560 + 12 * share)), "kv_bytes": int(LAYERS * 2**20 * share)}
            return Trace(tensors={}, doc=doc)
        self.log.append(("probe", self.name))
        salt = 0 if self.config.stack in (*self.twins, "mlx-lm") else 1
        base = np.random.default_rng(probe.token_ids).normal(size=(len(probe.token_ids), VOCAB))
        noise = np.random.default_rng([salt, *probe.token_ids]).normal(size=base.shape)
        logits = base + (0 if bits is None and not salt else {None: 1e-4, 8: 0.01, 4: 0.2}[bits]) * noise
        doc["kv_live"] = ["native"] + [scheme] * (len(probe.token_ids) - 1)
        return Trace(tensors={"logits": mx.array(logits.astype(np.float32))}, doc=doc)

    def close(self) -> None:
        self.log.append(("close", self.name))


class RefusingWorker(FakeWorker):
    """optiq kv4 cannot load; as with a process that is not waited for, the first probe says so."""

    def probe(self, probe: Probe | TimeProbe) -> Trace:
        if (self.config.stack, self.config.kv) == ("optiq", "kv4"):
            raise OracleRefused("optiq: NotImplementedError: no 4-bit here")
        return super().probe(probe)


def pool(log: list[tuple[str, str]], *, resident: bool = True) -> Pool:
    configs = {spec.name: StackConfig(stack=spec.stack, model="m", kv=spec.kv) for spec in RECIPES}
    return Pool(configs, lambda config: RefusingWorker(config, log), resident=resident)


def quiet(label: str, done: int, total: int | None) -> None:
    assert label
    assert total is None or done <= total


def measured(
    profile: Profile = PROFILE, *, resident: bool = True
) -> tuple[list[Sample], dict[str, Quality], dict[str, str]]:
    log: list[tuple[str, str]] = []
    prompts = [list(range(8))] * profile.rounds
    with pool(log, resident=resident) as p:
        warm_up(p, p.live, prompts[0], require_scheme, quiet)
        samples = take_samples(p, prompts, profile, require_scheme, quiet, 3)
        quality = run_quality(p, RECIPES, SEQUENCES, profile, quiet)
        return samples, quality, p.refused


def scorecard() -> Scorecard:
    samples, quality, refused = measured()
    packed = Artifact(90_000_000, 89_990_000, 134_515_008, 28_311_552, True)
    dense = Artifact(538_090_000, 538_060_032, 134_515_008, 28_311_552, True)
    ceilings = Ceilings(12.0, 14.5, 45.0, "openblas", "linux-x86_64-cpu-openblas0.3.21-zen")
    rows, verdict, floor = build_rows(RECIPES, samples, quality, refused, dense, ceilings, PROFILE)
    machine = {"cpu": "Some CPU", "cores": 2, "memory": "24 GB", "BLAS": "openblas", "os": "Linux 6", "python": "3.11"}
    return Scorecard(
        provenance=Provenance(
            command="frontier scorecard --quick --model smollm2-135m-instruct",
            date="2026-11-29 15:00 UTC",
            commit="0123456789ab (clean)",
            machine=machine,
            versions={"mlx": "0.32.4", "mlx-lm": "0.32.2", "mlx-optiq": "0.7.7"},
            model="smollm2-135m-instruct",
            timing_model="smollm2-135m-instruct-fp32",
        ),
        profile=PROFILE,
        ceilings=ceilings,
        artifacts={"smollm2-135m-instruct": packed, "smollm2-135m-instruct-fp32": dense},
        floor=floor,
        rows=rows,
        frontier=verdict,
        parity=StageResult(
            "packed model, native, 64 + 8 positions, bundled BLAS",
            "equal",
            True,
            cells=(("native, chunk 2048", "equal"),),
        ),
        experiment=StageResult(
            "kv8",
            "undecided: quick profile",
            True,
            row="8",
            reasons=("quick profile: 8 quads or fewer",),
            cells=(("decode_tok_s", "-4.1 % (-9.0 to +1.2)"),),
        ),
        notes=("rounds cut from 5 to 3: the pilot was too slow for the budget",),
        samples=tuple(samples),
        stage_s={"parity": 38.0, "ceilings": 5.0, "recipes": 101.0},
    )
