"""`frontier scorecard --measure`: parity, one paired experiment, the recipes; then the page from what was stored."""

from __future__ import annotations

import argparse
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path

from engine import BUILTIN, resolve_model
from lab import ceilings, fingerprint, stages
from lab.commands.scorecard import DEFAULT_MODEL, print_rows
from lab.config import compose, names
from lab.console import Output, progress_callback
from lab.lock import hold_timing
from lab.recipes import PROFILES, RECIPES, Profile
from lab.record import declare
from lab.scorecard.files import write_report
from lab.scorecard.ledger import NewRun, RunRecord, machine_class
from lab.scorecard.load import load
from lab.scorecard.servers import ServerConfig
from lab.scorecard.suites import record_architectures, record_suite
from lab.scorecard.twins import document
from lab.scorecard.words import page_headline
from lab.store import Store
from oracles.parity import BAD, CellResult

EXPERIMENT = "kv8"
# Seconds on two quiet cores with OpenBLAS and the built-in model in place; a pilot corrects samples and quality.
EXPECTED_S = {"parity": 40, "ceilings": 8, "experiment": 100, "start": 32, "samples": 65, "quality": 95, "page": 3}

Tick = Callable[[str, int, int | None], None]


class Stages:
    """Runs the stages in order: says what comes and for how long, draws its bar, keeps its seconds."""

    def __init__(self, out: Output, total: int) -> None:
        self.out, self.total = out, total
        self.seconds: dict[str, float] = {}

    @contextmanager
    def stage(self, name: str, what: str, expected_s: float) -> Iterator[Tick]:
        """Yields `tick(detail, done, total)`. The time is kept only if the stage ends well."""
        self.out.line(f"[{len(self.seconds) + 1}/{self.total}] {what}: about {expected_s:.0f} s")
        begin = time.monotonic()
        with progress_callback() as bar:
            bar(name, 0, None)
            yield lambda _detail, done, total: bar(name, done, total)
            bar(name, 1, 1)
        self.seconds[name] = time.monotonic() - begin
        self.out.line(f"      {name} took {self.seconds[name]:.0f} s")


def measure(args: argparse.Namespace, out: Output) -> int:
    """Exit code 0 when every stage ran and parity holds, 1 when parity does not; the page is written either way."""
    model = args.models[0] if args.models else DEFAULT_MODEL
    profile, servers = PROFILES[args.measure], [ServerConfig.of(text) for text in args.server]
    limits = machine_class(args.machine_class)
    timing_model = f"{model}-fp32" if f"{model}-fp32" in BUILTIN else model
    plan = Stages(out, total=7)
    out.line(f"frontier scorecard, profile {profile.name}: {model}, timed as {timing_model}, BLAS {args.blas}")
    if profile.name == "quick":
        expected = sum(EXPECTED_S.values()) / 60
        out.line(f"expected: about {expected:.0f} minutes with OpenBLAS on two cores; a pilot corrects this")
    with progress_callback() as bar:
        packed = Path(resolve_model(model, progress=bar))
        dense = Path(resolve_model(timing_model, progress=bar)) if timing_model != model else packed
    print_ = fingerprint.take()
    with Store.open(args.db) as store:
        for name in names():
            declare(store, compose(name))
        parity_ok = _parity(plan, store, print_, model, profile)
        with (
            plan.stage("ceilings", "the machine's ceilings", EXPECTED_S["ceilings"]),
            hold_timing("frontier scorecard"),
        ):
            found = ceilings.measure(args.blas)
        artifacts = {model: ceilings.read_artifact(packed), timing_model: ceilings.read_artifact(dense)}
        out.line("      " + ceilings.describe(found))
        out.line("      " + stages.describe_floor(artifacts[timing_model], found, profile))
        with plan.stage("experiment", f"paired experiment {EXPERIMENT}", EXPECTED_S["experiment"]) as tick:
            result = stages.run_paired(
                EXPERIMENT,
                profile.name,
                timing_model,
                args.blas,
                say=out.line,
                progress=tick,
                out=Path("outputs"),
                url=args.db,
            )
        out.line(f"      {EXPERIMENT}: {result.verdict}")
        new = NewRun(
            print=print_,
            model=model,
            timing_model=timing_model,
            model_sha256=fingerprint.model_sha256(dense),
            profile=profile.name,
            limits=limits,
            command=command_line(args, model),
            specs=(*RECIPES, *(server.spec for server in servers)),
        )
        with hold_timing("frontier scorecard --measure"), RunRecord.begin(store, new) as record:
            record.event("artifacts", {name: asdict(each) for name, each in artifacts.items()})
            record.event("ceilings", found.as_dict())
            stages.measure_recipes(
                plan.stage, out.line, record, dense, artifacts[timing_model], profile, args.blas, servers
            )
        with plan.stage("page", "the page", EXPECTED_S["page"]):
            card = load(store, print_.machine_key, [model])
            page = write_report(card, args.out)
    for each in card.models:
        print_rows(out, each)
    out.line(page_headline(card))
    out.line(f"scorecard: {page} ({sum(plan.seconds.values()) / 60:.1f} minutes)")
    stage_s = {name: round(seconds, 1) for name, seconds in plan.seconds.items()}
    out.document({"scorecard": str(page), **document(card), "stage_s": stage_s}, always=True)
    return 0 if parity_ok else 1


def _parity(plan: Stages, store: Store, print_: fingerprint.Fingerprint, model: str, profile: Profile) -> bool:
    """Run the model's cells, keep them, say what they were; whether none is faulty."""
    what = "parity of the engine with the running oracle, bundled BLAS"
    with plan.stage("parity", what, EXPECTED_S["parity"]) as tick:
        results = stages.check_parity(model, quick=profile.name == "quick", tick=tick)
    quick = " --quick" if profile.name == "quick" else ""
    command = f"frontier parity --model {model}{quick}"
    record_suite(store, print_, "model", command, "bundled", results, quick=bool(quick))
    record_architectures(store)
    plan.out.line(f"      parity: {statuses(results)}")
    return not any(result.status in BAD for result in results)


def statuses(results: list[CellResult]) -> str:
    """`equal`, or each status with its count."""
    counts = Counter(result.status for result in results)
    return next(iter(counts)) if len(counts) == 1 else ", ".join(f"{n} {word}" for word, n in sorted(counts.items()))


def command_line(args: argparse.Namespace, model: str) -> str:
    """The command that makes this run again."""
    parts = [f"frontier scorecard --measure {args.measure} --models {model} --blas {args.blas}"]
    parts += [f"--server {server}" for server in args.server]
    if args.machine_class != "shared":
        parts.append(f"--class {args.machine_class}")
    return " ".join(parts)
