"""Stand-ins for workers, and a database with runs of invented numbers, for tests of the measuring and of the page."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path

import mlx.core as mx
import numpy as np

from lab.ceilings import Artifact, Ceilings
from lab.config import MachineConf
from lab.fingerprint import Code, Fingerprint
from lab.quality import Quality, run_quality
from lab.recipes import AGAIN, PROFILES, RECIPES, REFERENCE, Pool, Profile, RecipeSpec, Sample, take_samples, warm_up
from lab.record import add_code, add_env, add_machine
from lab.scorecard.build import build_model
from lab.scorecard.card import ModelCard, Scorecard
from lab.scorecard.ledger import NewRun, RunRecord, machine_class
from lab.scorecard.load import load
from lab.scorecard.runs import Run
from lab.scorecard.suites import record_suite
from lab.store import Store, now
from lab.tables import DecisionRow, ExperimentRow, SessionRow
from oracles.contract import OracleRefused, Probe, StackConfig, TimeProbe, Trace
from oracles.live import require_scheme
from oracles.parity import Cell, CellResult

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


def pool(log: list[tuple[str, str]], *, resident: bool = True, aa: bool = False) -> Pool[StackConfig]:
    configs = {spec.name: StackConfig(stack=spec.stack, model="m", kv=spec.kv) for spec in RECIPES}
    configs |= {AGAIN: StackConfig(stack=REFERENCE.stack, model="m")} if aa else {}
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


KEY = "linux-x86_64-cpu-openblas0.3.21-zen"
DENSE = Artifact(538_090_000, 538_060_032, 134_515_008, 28_311_552, True)
PACKED = Artifact(90_000_000, 89_990_000, 134_515_008, 28_311_552, True)
CEILINGS = Ceilings(12.0, 14.5, 45.0, "openblas", KEY)
MODEL, TIMED = "smollm2-135m-instruct", "smollm2-135m-instruct-fp32"
FULL = replace(PROFILE, name="full", relaunch=True, aa=True, rounds=6)
COMMAND = "frontier scorecard --measure quick --models smollm2-135m-instruct --blas openblas"


def fingerprint(key: str = KEY, commit: str = "0123456789abcdef", arms: str = "a" * 64) -> Fingerprint:
    """Of an invented machine and source."""
    return Fingerprint(
        machine_key=key,
        machine={"key": key, "device": "cpu", "blas": "openblas", "cpu": "Some CPU", "cores": 2},
        python="3.11.7",
        packages={"mlx": "0.32.4", "mlx-lm": "0.32.2", "mlx-optiq": "0.7.7"},
        compiler="g++ 12",
        lock_sha256="b" * 64,
        variables={"OMP_NUM_THREADS": "2"},
        code=Code(commit, False, "", arms),
        boot="boot-1",
    )


def new_run(
    print_: Fingerprint, profile: Profile, limits: str = "shared", specs: Sequence[RecipeSpec] = RECIPES
) -> NewRun:
    return NewRun(
        print=print_,
        model=MODEL,
        timing_model=TIMED,
        model_sha256="c" * 64,
        profile=profile.name,
        limits=machine_class(limits),
        command=COMMAND,
        specs=tuple(specs),
    )


def record_run(
    store: Store,
    profile: Profile = PROFILE,
    print_: Fingerprint | None = None,
    limits: str = "shared",
    notes: Sequence[str] = (),
) -> str:
    """One run by the real ledger and invented workers; its uid."""
    log: list[tuple[str, str]] = []
    prompts = [list(range(8))] * (profile.rounds + 1)
    with (
        RunRecord.begin(store, new_run(print_ or fingerprint(), profile, limits)) as record,
        pool(log, aa=profile.aa) as p,
    ):
        record.event("artifacts", {MODEL: asdict(PACKED), TIMED: asdict(DENSE)})
        record.event("ceilings", CEILINGS.as_dict())
        warm_up(p, p.live, prompts[0], require_scheme, quiet)
        record.event("fitted", {"profile": asdict(profile), "notes": list(notes)})
        take_samples(p, prompts, profile, require_scheme, quiet, 3, record.sample)
        record.event("flight", {"sensors": [{"name": "thermal", "value": 0.0, "limit": 0.0, "status": "ok"}]})
        record.quality(run_quality(p, RECIPES, SEQUENCES, profile, quiet), "d" * 64)
        for name, reason in p.refused.items():
            record.event("refused", {"recipe": name, "why": reason})
    return record.uid


def cell_result(status: str, why: str = "") -> CellResult:
    cell = Cell(name="llama", dtype="float32", model="m", probe=Probe(token_ids=(1, 2, 3), tail=1), steps=1)
    return CellResult(cell, status, why)


def add_decision(
    store: Store, name: str, verdict: str, *, state: str = "measuring", key: str = KEY, row: str = "8"
) -> str:
    """An experiment with a session and a decision on a machine key; the session's uid."""
    words = {"hypothesis": "Less memory", "kind": "oracle-owned", "quality_class": "Q8", "primary_metric": "kv_bytes"}
    dates = {"owner": "x", "declared_on": "2026-11-29", "expires_on": "2026-12-29"}
    id_ = store.declare(ExperimentRow(name=name, state=state, **words, **dates))
    print_ = fingerprint(key)
    from lab.tables import ConfigRow, WorkloadRow

    config = store.once(ConfigRow(sha256="e", resolved_yaml="model: m-fp32\nprofile: {name: quick}\n"), sha256="e")
    ids = {"prompt_tokens": 8, "max_tokens": 17, "batch": 1, "concurrency": 1}
    work = store.once(WorkloadRow(sha256="f", sampler="greedy", token_ids=[1], **ids), sha256="f")
    uid = f"20261129T150000-{name}-{key[-3:]}"
    places = {
        "machine_id": add_machine(store, print_),
        "env_id": add_env(store, print_),
        "code_id": add_code(store, print_),
    }
    kinds = {
        "purpose": "search",
        "profile": "quick",
        "boot": "b",
        "started": "2026-11-29T15:00:00",
        "as_of": "2026-11-29",
    }
    seeds = {"aa_seed": "1", "ab_seed": "2", "folder": "outputs"}
    session = store.add(
        SessionRow(uid=uid, experiment_id=id_, config_id=config, workload_id=work, **places, **kinds, **seeds)
    )
    store.add(
        DecisionRow(
            experiment_id=id_,
            session_id=session,
            machine_key=key,
            rule_row=row,
            verdict=verdict,
            reasons=["quick profile: 8 quads or fewer"],
            facts={},
            evidence=[],
            as_of="2026-11-29",
            at=now(),
            analysis_sha256="0",
        )
    )
    return uid


def filled(path: Path, profiles: Sequence[Profile] = (PROFILE,), limits: str = "shared") -> Path:
    """A database with a run of each profile, a parity suite, an open and a decided experiment."""
    with Store.open(str(path)) as store:
        for profile in profiles:
            record_run(
                store, profile, limits=limits, notes=("rounds cut from 5 to 3: the pilot was too slow for the budget",)
            )
        results = [cell_result("equal"), cell_result("equal"), cell_result("not run", "no Metal")]
        record_suite(store, fingerprint(), "model", "frontier parity --model smollm2-135m-instruct", "bundled", results)
        add_decision(store, "kv8", "undecided: quick profile")
        add_decision(store, "kv4", "delete: gate", state="deleted", row="1")
    return path


def scorecard(path: Path, profiles: Sequence[Profile] = (PROFILE,), limits: str = "shared") -> Scorecard:
    """The card of such a database."""
    with Store.open(str(filled(path, profiles, limits))) as store:
        return load(store, KEY)


def invented_run(
    specs: Sequence[RecipeSpec], rounds: int = 3, *, profile: Profile = PROFILE, spread: float = 0.01
) -> Run:
    """A run of any recipes, made without a database: layouts are tried on it."""
    rng = np.random.default_rng(5)
    samples = [
        Sample(
            recipe=spec.name,
            round=r,
            position=i,
            decode_tok_s=(10 + i % 7) * float(np.exp(rng.normal(0, spread))),
            prefill_tok_s=80.0 * float(np.exp(rng.normal(0, spread))),
            ttft_ms=100.0 + r,
            tpot_ms=90.0 + r,
            peak_bytes=600 * 2**20 + 2**18 * (i % 40),
            rss_bytes=900 * 2**20,
            kv_bytes=2**20 * (1 + i % 9),
            kv_status="native",
            sample_s=2.0,
            launch=r if profile.relaunch else 0,
            steal=0.0,
        )
        for r in range(rounds)
        for i, spec in enumerate(specs)
    ]
    kl = {
        s.name: Quality(s.name, tuple(1e-4 * i * (1 + j) for j in range(5)), (3.0, 3.1, 3.2, 3.3, 3.4), 0.99, 50)
        for i, s in enumerate(specs)
    }
    print_ = fingerprint()
    return Run(
        uid="20261129T150000-00000000",
        started="2026-11-29T15:00:00",
        outcome="finished",
        words="",
        command=COMMAND,
        model=MODEL,
        timing_model=TIMED,
        model_sha256="c" * 64,
        machine_key=KEY,
        machine=print_.machine,
        git_sha=print_.code.git_sha,
        dirty=False,
        arms_sha256=print_.code.arms_sha256,
        env_sha256="e" * 64,
        python="3.11.7",
        packages=print_.packages,
        variables={},
        boot="b",
        limits=MachineConf(**asdict(machine_class("shared"))),
        profile=profile,
        ceilings=CEILINGS,
        artifacts={TIMED: DENSE},
        samples=tuple(samples),
        specs=tuple(specs),
        quality=kl,
    )


def page_of(*models: ModelCard) -> Scorecard:
    """A scorecard of these models and nothing else."""
    return Scorecard(KEY, {"cpu": "Some CPU"}, "2026-11-29T15:00:00", models, (), (), (), ())


def model_of(run: Run) -> ModelCard:
    card = build_model([run])
    assert card is not None
    return card
