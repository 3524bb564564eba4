"""The stages of the scorecard as functions: each asks one neighbour of the lab and returns plain results."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path

from engine import load_tokenizer, machine
from evals.corpus import sequences as corpus_sequences
from lab.ceilings import Artifact, Ceilings, Floor
from lab.quality import Quality, run_quality
from lab.recipes import (
    RECIPES,
    WARMUP_TOKENS,
    Pilot,
    Pool,
    Profile,
    Sample,
    fit,
    fits_memory,
    kl_seconds,
    take_samples,
    warm_up,
)
from lab.scorecard import REFERENCE, Provenance, StageResult
from oracles.client import Worker
from oracles.contract import OracleRefused, StackConfig, TimeProbe
from oracles.live import require_scheme

SEED = 20261129
START_S = 3.5
WARMUP_PROMPT = 32
# The experiment's sizes on the bundled BLAS, which prefills a few tokens a second: the quick profile decides nothing,
# and with these it ends within minutes there too.
SLOW_PROMPT, SLOW_KL_SEQUENCES, SLOW_KL_LENGTH = 32, 4, 48
SLOW_SIZES = f"a prompt of {SLOW_PROMPT} tokens and a KL text of {SLOW_KL_SEQUENCES} x {SLOW_KL_LENGTH} tokens"
DISTRIBUTIONS = ("mlx-frontier", "mlx", "mlx-lm", "mlx-optiq", "numpy")

Tick = Callable[[str, int, int | None], None]
Stage = Callable[[str, str, float], AbstractContextManager[Tick]]


@dataclass(frozen=True)
class Measured:
    """What the recipe stages found."""

    profile: Profile
    samples: list[Sample]
    quality: dict[str, Quality]
    refused: dict[str, str]
    notes: tuple[str, ...]
    versions: dict[str, str]


def check_parity(model: str, *, quick: bool, tick: Tick) -> StageResult:
    """Run the parity cells of `model`, always with the bundled BLAS, where bits are comparable."""
    from oracles.matrix import model_cells
    from oracles.parity import BAD, run_cells

    begin = time.monotonic()
    cells = model_cells(model, quick=quick)
    results = list(run_cells(cells, blas="bundled", progress=tick))
    lines = []
    for result in results:
        row = result.as_dict()
        what = (
            f"{row['dtype']}, {row['kv']}, {row['kind']}, {row['prompt']} + {row['steps']} tokens, {row['reference']}"
        )
        where = "" if result.difference is None else f" {result.difference}"
        lines.append((what, f"{result.status}{where}{': ' + result.why if result.why else ''}"))
    statuses = sorted({result.status for result in results})
    return StageResult(
        name=f"{model} as packed, {len(results)} cell{'s' if len(results) > 1 else ''}, bundled BLAS",
        verdict=", ".join(statuses),
        ok=not any(status in BAD for status in statuses),
        cells=tuple(lines),
        seconds=time.monotonic() - begin,
    )


def run_paired(
    name: str, profile: str, model: str, blas: str, *, say: Callable[[str], None], progress: Tick, out: Path
) -> StageResult:
    """Run one experiment through the lab and put its answer into the scorecard's words."""
    from lab.run import run_experiment

    overrides = [f"model='{model}'"]
    if profile == "quick" and blas == "bundled" and machine().device == "cpu":
        overrides.append(f"profile.prompt_tokens={SLOW_PROMPT}")
        size = f"sequences:{SLOW_KL_SEQUENCES},length:{SLOW_KL_LENGTH}"
        overrides.append(f"profile.kl=[{{protocol:forward,{size}}}]")
        say(f"      cut to {SLOW_SIZES}: the bundled BLAS is slow")
    found = run_experiment(
        name,
        profile=profile,
        overrides=overrides,
        blas=blas,
        say=lambda line: say(f"      {line}"),
        progress=progress,
        out=out,
    )
    cells = [(f"{c.use}: {c.metric}", f"{c.state}: {c.why}") for c in found.comparisons if c.use == "aa"]
    cells += [("samples", str(found.samples)), ("session", found.session)]
    return StageResult(
        name=name,
        verdict=found.verdict,
        ok=True,
        row=found.row,
        reasons=(*found.reasons, *(f"note: {note}" for note in found.notes)),
        cells=tuple(cells),
        seconds=found.seconds,
    )


def describe_floor(artifact: Artifact, ceilings: Ceilings, profile: Profile) -> str:
    """The workload's least time as a line, before any sample is taken."""
    floor = Floor.of(artifact, 0, profile.prompt_tokens, ceilings)
    return (
        f"floor: a decode step reads {floor.decode_bytes / 1e6:.0f} MB and does {floor.decode_flops / 1e9:.2f} GFLOP, "
        f"so at most {1 / floor.decode_s:.1f} tok/s ({floor.decode_bound}); "
        f"prefill at most {1 / floor.prefill_token_s:.0f} tok/s ({floor.prefill_bound})"
    )


def blas_note(blas: str) -> tuple[str, ...]:
    """What the reader must know about a run on MLX's own BLAS."""
    if blas != "bundled" or machine().device != "cpu":
        return ()
    return (
        f"Timed on the bundled BLAS, whose fp32 products are many times slower than OpenBLAS; "
        f"in the quick profile the experiment has {SLOW_SIZES} there.",
    )


def pilot_of(pool: Pool, name: str, prompt: Sequence[int]) -> Pilot:
    """One throw-away sample of the reference recipe. Errors: `OracleRefused` when the reference does not run."""
    ids = tuple(prompt)
    trace = None
    for _ in range(2):
        trace = pool.ask(name, TimeProbe(token_ids=ids, max_tokens=2 * WARMUP_TOKENS))
    if trace is None:
        raise OracleRefused(pool.refused[name])
    sample = Sample.of(name, 0, 0, trace)
    return Pilot(sample.prefill_tok_s, sample.decode_tok_s)


def measure_recipes(
    stage: Stage, say: Callable[[str], None], folder: Path, artifact: Artifact, profile: Profile, blas: str
) -> Measured:
    """Start every recipe, fit the sizes to a pilot, take the samples in turn, then score KL and perplexity."""
    configs = {spec.name: spec.config(folder, blas) for spec in RECIPES}
    tokenizer = load_tokenizer(folder)
    prompts = corpus_sequences(tokenizer, profile.rounds, profile.prompt_tokens)
    resident = fits_memory(artifact.artifact_bytes, len(RECIPES))

    def start(config: StackConfig) -> Worker:
        return Worker(config, wait=False)

    with Pool(configs, start, resident=resident) as pool:
        with stage("start", f"{len(RECIPES)} recipes, each in its own process", START_S * len(RECIPES)) as tick:
            pilot = pilot_of(pool, REFERENCE, prompts[0][: profile.prompt_tokens // 2])
            warm_up(pool, pool.live, prompts[0][:WARMUP_PROMPT], require_scheme, tick)
        for name, reason in pool.refused.items():
            say(f"      not run: {name}: {reason}")
        fitted, notes = fit(profile, pilot, len(pool.live))
        for note in notes:
            say(f"      {note}")
        timed_s = fitted.rounds * len(pool.live) * pilot.sample_s(fitted)
        if not resident:
            notes += ("Memory does not hold all recipes at once, so each sample came from a fresh process.",)
            timed_s += fitted.rounds * len(pool.live) * START_S
        sizes = f"{fitted.prompt_tokens} + {fitted.decode_tokens} tokens"
        what = f"{fitted.rounds} rounds of {len(pool.live)} recipes, {sizes}"
        with stage("samples", what, timed_s) as tick:
            samples = take_samples(pool, prompts, fitted, require_scheme, tick, SEED)
        ids = corpus_sequences(tokenizer, fitted.kl_sequences, fitted.kl_length + 1)
        what = f"KL and perplexity on {fitted.kl_sequences} x {fitted.kl_length} tokens"
        with stage("quality", what, kl_seconds(fitted, pilot, len(pool.live))) as tick:
            quality = run_quality(pool, RECIPES, ids, fitted, tick)
        return Measured(fitted, samples, quality, dict(pool.refused), notes, versions())


def versions() -> dict[str, str]:
    """Installed versions of what the numbers depend on."""
    return {name: metadata.version(name) for name in DISTRIBUTIONS}


def commit() -> str:
    """The commit of this source tree, and whether it was changed since; "not a git tree" for an installed wheel."""
    root = Path(__file__).resolve().parents[1]
    if not (root / ".git").exists():
        return "not a git tree"

    def git(*words: str) -> str:
        return subprocess.run(
            ["git", "-C", str(root), *words], capture_output=True, text=True, check=True
        ).stdout.strip()

    return f"{git('rev-parse', '--short=12', 'HEAD')} ({'dirty' if git('status', '--porcelain') else 'clean'})"


def machine_facts() -> dict[str, object]:
    """The machine in the page's words."""
    here = machine()
    return {
        "Machine key": here.key,
        "CPU": here.cpu,
        "Cores": here.cores,
        "Memory": f"{here.memory_bytes / 2**30:.1f} GiB",
        "System": f"{here.os}, {here.arch}, device {here.device}",
        "BLAS": here.blas,
        "Compiler": here.compiler or "none",
        "Python": here.python,
    }


def provenance(command: str, model: str, timing_model: str, packages: dict[str, str]) -> Provenance:
    """Where and when the numbers of this page were made."""
    return Provenance(
        command=command,
        date=datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        commit=commit(),
        machine=machine_facts(),
        versions=packages,
        model=model,
        timing_model=timing_model,
    )
