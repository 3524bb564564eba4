"""The stages of the scorecard as functions: each asks one neighbour of the lab and returns plain results."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict
from pathlib import Path
from typing import Any

from engine import load_tokenizer, machine
from evals.corpus import SHA256
from evals.corpus import sequences as corpus_sequences
from lab import sensors
from lab.ceilings import Artifact, Ceilings, Floor
from lab.quality import run_quality
from lab.recipes import (
    AGAIN,
    RECIPES,
    REFERENCE,
    WARMUP_TOKENS,
    C,
    Pilot,
    Pool,
    Profile,
    RecipeSpec,
    Sample,
    fit,
    fits_memory,
    kl_seconds,
    take_samples,
    warm_up,
)
from lab.run import RunResult, run_experiment
from lab.scorecard.ledger import RunRecord
from lab.scorecard.servers import KV as SERVER_KV
from lab.scorecard.servers import Server, ServerConfig
from oracles.client import Worker
from oracles.contract import OracleRefused, StackConfig, TimeProbe, Trace
from oracles.live import require_scheme
from oracles.parity import CellResult

SEED = 20261129
START_S = 3.5
WARMUP_PROMPT = 32
# The experiment's sizes on the bundled BLAS, which prefills a few tokens a second: the quick profile decides nothing,
# and with these it ends within minutes there too.
SLOW_PROMPT, SLOW_KL_SEQUENCES, SLOW_KL_LENGTH = 32, 4, 48
SLOW_SIZES = f"a prompt of {SLOW_PROMPT} tokens and a KL text of {SLOW_KL_SEQUENCES} x {SLOW_KL_LENGTH} tokens"

Tick = Callable[[str, int, int | None], None]
Stage = Callable[[str, str, float], AbstractContextManager[Tick]]


def check_parity(model: str, *, quick: bool, tick: Tick) -> list[CellResult]:
    """Run the parity cells of `model`, always with the bundled BLAS, where bits are comparable."""
    from oracles.matrix import model_cells
    from oracles.parity import run_cells

    return list(run_cells(model_cells(model, quick=quick), blas="bundled", progress=tick))


def run_paired(
    name: str,
    profile: str,
    model: str,
    blas: str,
    *,
    say: Callable[[str], None],
    progress: Tick,
    out: Path,
    url: str | None,
) -> RunResult:
    """Run one experiment through the lab."""
    overrides = [f"model='{model}'"]
    if profile == "quick" and blas == "bundled" and machine().device == "cpu":
        overrides.append(f"profile.prompt_tokens={SLOW_PROMPT}")
        size = f"sequences:{SLOW_KL_SEQUENCES},length:{SLOW_KL_LENGTH}"
        overrides.append(f"profile.kl=[{{protocol:forward,{size}}}]")
        say(f"      cut to {SLOW_SIZES}: the bundled BLAS is slow")
    return run_experiment(
        name,
        profile=profile,
        overrides=overrides,
        blas=blas,
        say=lambda line: say(f"      {line}"),
        progress=progress,
        out=out,
        url=url,
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


def pilot_of(pool: Pool[C], name: str, prompt: Sequence[int]) -> Pilot:
    """One throw-away sample of the reference recipe. Errors: `OracleRefused` when the reference does not run."""
    ids = tuple(prompt)
    trace = None
    for _ in range(2):
        trace = pool.ask(name, TimeProbe(token_ids=ids, max_tokens=2 * WARMUP_TOKENS))
    if trace is None:
        raise OracleRefused(pool.refused[name])
    sample = Sample.of(name, 0, 0, trace)
    return Pilot(sample.prefill_tok_s, sample.decode_tok_s)


def require_live(trace: Trace, kv: str) -> None:
    """Of a stack's own process, the asked scheme; a server's caches are not seen. Errors: `SchemeNotLive`."""
    if kv != SERVER_KV:
        require_scheme(trace, kv)


def configs_of(
    profile: Profile, folder: Path, blas: str, servers: Sequence[ServerConfig]
) -> dict[str, StackConfig | ServerConfig]:
    """Every process or server of a run by the name of its recipe; with an A/A the reference is there twice."""
    found: dict[str, StackConfig | ServerConfig] = {spec.name: spec.config(folder, blas) for spec in RECIPES}
    if profile.aa:
        found[AGAIN] = REFERENCE.config(folder, blas)
    return found | {server.spec.name: server for server in servers}


def measure_recipes(
    stage: Stage,
    say: Callable[[str], None],
    record: RunRecord,
    folder: Path,
    artifact: Artifact,
    profile: Profile,
    blas: str,
    servers: Sequence[ServerConfig] = (),
) -> None:
    """Start every recipe, fit the sizes to a pilot, take the samples in turn, then score KL and perplexity. All of it
    is in the database when this returns."""
    configs = configs_of(profile, folder, blas, servers)
    tokenizer = load_tokenizer(folder)
    prompts = corpus_sequences(tokenizer, profile.rounds + 1, profile.prompt_tokens)
    resident = fits_memory(artifact.artifact_bytes, len(configs) - len(servers))

    def start(config: StackConfig | ServerConfig) -> Worker | Server:
        return Server(config, tokenizer.decode) if isinstance(config, ServerConfig) else Worker(config, wait=False)

    before = sensors.read()
    with Pool(configs, start, resident=resident) as pool:
        with stage("start", f"{len(configs)} recipes, each in its own process", START_S * len(configs)) as tick:
            pilot = pilot_of(pool, REFERENCE.name, prompts[-1][: profile.prompt_tokens // 2])
            warm_up(pool, pool.live, prompts[-1][:WARMUP_PROMPT], require_live, tick)
        fitted, notes = fit(profile, pilot, len(pool.live))
        for note in notes:
            say(f"      {note}")
        timed_s = fitted.rounds * len(pool.live) * pilot.sample_s(fitted)
        if not resident:
            notes += ("Memory does not hold all recipes at once, so each sample came from a fresh process.",)
            timed_s += fitted.rounds * len(pool.live) * START_S
        record.event("fitted", {"profile": asdict(fitted), "notes": [*notes, *blas_note(blas)]})
        sizes = f"{fitted.prompt_tokens} + {fitted.decode_tokens} tokens"
        with stage("samples", f"{fitted.rounds} rounds of {len(pool.live)} recipes, {sizes}", timed_s) as tick:
            take_samples(
                pool, [*prompts[: fitted.rounds], prompts[-1]], fitted, require_live, tick, SEED, record.sample
            )
        record.event("flight", flight(before, record.limits))
        _score(stage, pool, tokenizer, fitted, pilot, record)
        for name, reason in pool.refused.items():
            record.event("refused", {"recipe": name, "why": reason})
            say(f"      not run: {name}: {reason}")


def _score(
    stage: Stage,
    pool: Pool[StackConfig | ServerConfig],
    tokenizer: Any,
    profile: Profile,
    pilot: Pilot,
    record: RunRecord,
) -> None:
    """KL and perplexity of the recipes that have logits."""
    specs = [RecipeSpec(spec.stack, spec.kv) for spec in RECIPES if spec.name in pool.live]
    ids = corpus_sequences(tokenizer, profile.kl_sequences, profile.kl_length + 1)
    what = f"KL and perplexity on {profile.kl_sequences} x {profile.kl_length} tokens"
    with stage("quality", what, kl_seconds(profile, pilot, len(specs))) as tick:
        record.quality(run_quality(pool, specs, ids, profile, tick), SHA256)


def flight(before: sensors.Reading, limits: sensors.Limits) -> dict[str, Any]:
    """What the machine's sensors say of the time since `before`, as a document."""
    found = sensors.judge(before, sensors.read(), limits, cores=machine().cores)
    return {"sensors": [sensor.__dict__ for sensor in found]}
