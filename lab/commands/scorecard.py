"""`frontier scorecard`: parity, one paired experiment, the recipes, and the page. The job of `make scorecard`."""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from lab.console import Output, progress_callback, wide_console

if TYPE_CHECKING:
    from lab.scorecard import Scorecard

HELP = "measure the frontier of speed, memory, size and fidelity against mlx-lm and optiq, and write the page"
EXAMPLE = "frontier scorecard --quick"
DEFAULT_MODEL = "smollm2-135m-instruct"
EXPERIMENT = "kv8"

# Seconds on two quiet cores with OpenBLAS and the built-in model in place; a pilot corrects samples and quality.
EXPECTED_S = {"parity": 40, "ceilings": 8, "experiment": 100, "start": 32, "samples": 65, "quality": 95, "page": 3}

Tick = Callable[[str, int, int | None], None]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Flags of `frontier scorecard`."""
    size = parser.add_mutually_exclusive_group()
    size.add_argument(
        "--quick", action="store_true", help="minutes on two cores; every verdict stays undecided (default)"
    )
    size.add_argument("--full", action="store_true", help="the whole protocol; hours on two cores")
    parser.add_argument("--model", default=DEFAULT_MODEL, help="built-in name, model folder or hub id")
    parser.add_argument("--out", type=Path, default=Path("reports"), help="folder of the reports (default: reports)")


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


def run(args: argparse.Namespace) -> int:
    """Exit code 0 when every stage ran and parity holds, 1 when parity does not; the page is written either way."""
    from engine import BUILTIN, resolve_model
    from lab import ceilings, report, scorecard, stages
    from lab.lock import hold_timing
    from lab.recipes import PROFILES, RECIPES

    out = Output(as_json=args.json)
    profile = PROFILES["full" if args.full else "quick"]
    timing_model = f"{args.model}-fp32" if f"{args.model}-fp32" in BUILTIN else args.model
    plan = Stages(out, total=7)
    expected = sum(EXPECTED_S.values())
    out.line(f"frontier scorecard, profile {profile.name}: {args.model}, timed as {timing_model}, BLAS {args.blas}")
    if profile.name == "quick":
        out.line(f"expected: about {expected / 60:.0f} minutes with OpenBLAS on two cores; a pilot corrects this")

    with progress_callback() as bar:
        packed = Path(resolve_model(args.model, progress=bar))
        dense = Path(resolve_model(timing_model, progress=bar)) if timing_model != args.model else packed
    artifacts = {args.model: ceilings.read_artifact(packed), timing_model: ceilings.read_artifact(dense)}
    with plan.stage("parity", "parity of the engine with the running oracle, bundled BLAS", EXPECTED_S["parity"]) as t:
        parity = stages.check_parity(args.model, quick=profile.name == "quick", tick=t)
    out.line(f"      parity: {parity.verdict}")
    with plan.stage("ceilings", "the machine's ceilings", EXPECTED_S["ceilings"]), hold_timing("frontier scorecard"):
        limits = ceilings.measure(args.blas)
    out.line("      " + ceilings.describe(limits))
    out.line("      " + stages.describe_floor(artifacts[timing_model], limits, profile))
    with plan.stage("experiment", f"paired experiment {EXPERIMENT}", EXPECTED_S["experiment"]) as t:
        experiment = stages.run_paired(
            EXPERIMENT, profile.name, timing_model, args.blas, say=out.line, progress=t, out=Path("outputs")
        )
    out.line(f"      {EXPERIMENT}: {experiment.verdict}")
    with hold_timing("frontier scorecard"):
        measured = stages.measure_recipes(plan.stage, out.line, dense, artifacts[timing_model], profile, args.blas)
    rows, frontier, floor = scorecard.build_rows(
        RECIPES, measured.samples, measured.quality, measured.refused, artifacts[timing_model], limits, measured.profile
    )
    card = scorecard.Scorecard(
        provenance=stages.provenance(command_line(args), args.model, timing_model, measured.versions),
        profile=measured.profile,
        ceilings=limits,
        artifacts=artifacts,
        floor=floor,
        rows=rows,
        frontier=frontier,
        parity=parity,
        experiment=experiment,
        notes=measured.notes + stages.blas_note(args.blas),
        samples=tuple(measured.samples),
        stage_s=plan.seconds,
    )
    with plan.stage("page", "the page", EXPECTED_S["page"]):
        page = report.write_report(card, args.out)
    print_rows(out, card)
    out.line(scorecard.headline(card))
    out.line(f"scorecard: {page} ({sum(plan.seconds.values()) / 60:.1f} minutes)")
    out.document(scorecard.summary(card, str(page)), always=True)
    return 0 if parity.ok and experiment.ok else 1


def command_line(args: argparse.Namespace) -> str:
    """The command that makes this page again."""
    parts = ["frontier scorecard", "--full" if args.full else "--quick", f"--model {args.model}", f"--blas {args.blas}"]
    if args.out != Path("reports"):
        parts.append(f"--out {args.out}")
    return " ".join(parts)


def print_rows(out: Output, card: Scorecard) -> None:
    """The recipes as a short table for the terminal."""
    from rich.box import SIMPLE
    from rich.table import Table

    from lab.metrics import show

    table = Table(title=f"{card.provenance.timing_model}, {card.profile.context} tokens", box=SIMPLE, padding=(0, 1))
    for column in ("recipe", "tok/s", "±", "limit", "prefill", "peak MiB", "KV MiB", "ppl", "KL nats", "P"):
        table.add_column(column, justify="left" if column == "recipe" else "right", no_wrap=True)
    for row in card.measured:
        decode, bytes_ = row.metrics["decode_tok_s"], row.metrics
        half = None if decode.low is None or decode.high is None else (decode.high / decode.low) ** 0.5 - 1
        table.add_row(
            row.name,
            show("decode_tok_s", decode.value),
            "–" if half is None else f"{100 * half:.0f} %",
            f"{row.decode_percent:.0f} %",
            show("prefill_tok_s", row.metrics["prefill_tok_s"].value),
            *(f"{bytes_[name].value / 2**20:,.1f}" for name in ("peak_bytes", "kv_bytes")),
            *(show(name, row.metrics[name].value) for name in ("perplexity", "kl_nats")),
            show("p_frontier", row.p_frontier),
        )
    wide_console(out).print(table)
    for row in card.rows:
        if row.why_not is not None:
            out.line(f"not run: {row.name}: {row.why_not}")
