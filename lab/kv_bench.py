"""KV schemes behind a context: decode speed and conversion time, the engine against whoever ships the scheme.

Sessions are those of `lab.paired`: launches of two quads in new processes, coins, the launch as the unit. Each process
fills native caches once and starts every sample from copies of them. A is the other stack ("base"), B the engine; a
ratio above 1 is a faster engine. A scheme that nobody else has runs against the engine's native and gets no verdict.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from engine import errors, parse_kv
from lab.graph_bench import Limits, Row, geometric_mean, summarise_task
from lab.graph_models import SIZES, config_of
from lab.measure import Asked, Sample, Start
from lab.paired import Paired
from oracles.contract import CacheProbe, OracleRefused, StackConfig, Trace
from oracles.kv_suite import mixed_plan

MODELS = ("llama", "gemma3_text")
CONTEXTS = (256, 2048, 8192)
SCHEMES = ("native", "kv8", "kv4", "mixed", "kv8/4", "turbo:k8v3", "kv8:on-write")
MIXED_BITS = (8, 4)
DECODE_STEPS = 16
# Conversions get this share of a sample's seconds, at least one each time that the steps are repeated.
CONVERT_SHARE = 0.25
OWN = "no other stack has it"


@dataclass(frozen=True, kw_only=True)
class Case:
    """One scheme of one model at one context, in tokens. `scheme`: as it was asked for; `kv`: its notation.

    against: the stack that it is compared with; own: whether only the engine has it.
    """

    model: str
    context: int
    scheme: str
    kv: str
    against: str
    own: bool

    def arms(self, folder: str, blas: str) -> tuple[StackConfig, StackConfig]:
        """The other and the engine."""
        kv = "native" if self.own else self.kv
        base = StackConfig(stack=self.against, model=folder, kv=kv, blas=blas)
        return base, StackConfig(stack="engine", model=folder, kv=self.kv, blas=blas)


@dataclass(frozen=True, kw_only=True)
class CacheSample(Sample):
    """`convert_ms`: of one conversion; None where the arm converts nothing."""

    convert_ms: float | None

    @classmethod
    def of(cls, sample: Sample, trace: Trace) -> CacheSample:
        seconds = trace.doc["convert_s"]
        return cls(**sample.__dict__, convert_ms=None if seconds is None else 1000 * seconds)


@dataclass(frozen=True, kw_only=True)
class CaseResult:
    """`kv_bytes`: the largest live caches of (the other, the engine); None where nothing ran."""

    case: Case
    rows: tuple[Row, ...]
    kv_bytes: tuple[int, int] | None
    repeats: int
    conversions: int
    seed: int
    samples: tuple[CacheSample, ...]


def shipped_by(kv: str, caches: int, *, rings: bool) -> str | None:
    """The stack that has a scheme too; None for the engine's own. `rings`: whether the model has sliding windows, which
    mlx-lm does not quantise. Errors: `InvalidValue`, `CorruptFile` for a notation or plan that is none."""
    asked = parse_kv(kv)
    if asked.kind == "native":
        return "mlx-lm"
    layers = [each for each in asked.layers(caches) if each is not None]
    if asked.on_write or any(each.turbo or each.bits != each.value_bits for each in layers):
        return None
    return "optiq" if asked.kind == "mixed" or rings else "mlx-lm"


def cases(models: Sequence[str], contexts: Sequence[int], schemes: Sequence[str], size: str) -> list[Case]:
    """All of them; refused here, before anything is built, if one makes no sense. "mixed" is a plan of 8 and 4 bits in
    turn.

    Errors: `UnknownField` for a model or size, `InvalidValue` for a context or scheme.
    """
    found = []
    for model in models:
        rings, caches = "sliding_window" in config_of(model, size), SIZES[size].layers
        for context in contexts:
            if context < 1:
                raise errors.InvalidValue("--contexts", context, "integers >= 1, separated by commas")
            for scheme in schemes:
                plan = {layer: MIXED_BITS[layer % len(MIXED_BITS)] for layer in range(caches)}
                kv = str(parse_kv(mixed_plan(plan) if scheme == "mixed" else scheme))
                other = shipped_by(kv, caches, rings=rings)
                case = Case(
                    model=model, context=context, scheme=scheme, kv=kv, against=other or "engine", own=other is None
                )
                found.append(case)
    return found


def summarise(case: Case, samples: Sequence[CacheSample], limits: Limits) -> tuple[Row, ...]:
    """Decode, and conversion where the scheme has one."""
    decode = summarise_task(case.model, "decode", "decode_tok_s", samples, limits)
    converts = all(s.convert_ms is not None for s in samples if s.role == "candidate")
    if case.own:
        rows = [replace(decode, verdict="lab", why=OWN)]
        if converts:
            mean = geometric_mean(samples, "candidate", "convert_ms")
            rows.append(Row(case.model, "convert", "lab", OWN, candidate=mean))
        return tuple(rows)
    convert = [summarise_task(case.model, "convert", "convert_ms", samples, limits)] if converts else []
    return (decode, *convert)


def choose_counts(worker: Asked, once: CacheProbe, sample_s: float) -> tuple[int, int]:
    """How often steps and conversions are repeated for a sample of `sample_s`; the first run is thrown away."""
    worker.probe(once)
    doc = worker.probe(once).doc
    repeats = math.ceil(sample_s / doc["decode_s"])
    convert_s = doc["convert_s"]
    return repeats, 1 if convert_s is None else math.ceil(CONVERT_SHARE * sample_s / convert_s)


def run_case(
    case: Case,
    arms: tuple[StackConfig, StackConfig],
    token_ids: tuple[int, ...],
    launches: int,
    limits: Limits,
    start: Start,
    tick: Callable[[str], None],
) -> CaseResult:
    """Measure one case. `arms`: (the other, the engine).

    A side that refuses makes the row "not run" with its reason. Errors: `OracleCrashed`, `LeverNotApplied`,
    `InvalidValue` for fewer than one launch.
    """
    name = f"{case.model} {case.context} {case.scheme}"
    session = Paired(task="kv", name=name, arms=arms, launches=launches, start=start, tick=tick)
    once = CacheProbe(token_ids=token_ids, steps=DECODE_STEPS)
    try:
        counts = session.pilots(lambda worker: choose_counts(worker, once, limits.sample_s))
    except OracleRefused as refused:
        row = Row(case.model, "decode", "not run", str(refused))
        return CaseResult(
            case=case, rows=(row,), kv_bytes=None, repeats=0, conversions=0, seed=session.seed, samples=()
        )
    repeats = max(count[0] for count in counts)
    # As many as the slower side has time for: the other may be hundreds of times faster.
    conversions = max(repeats, min(count[1] for count in counts))
    samples = session.samples(replace(once, repeats=repeats, conversions=conversions), CacheSample.of)
    timed = [sample for sample in samples if not sample.warm_up]
    base, candidate = (max(s.kv_bytes for s in timed if s.role == role) for role in ("base", "candidate"))
    return CaseResult(
        case=case,
        rows=summarise(case, timed, limits),
        kv_bytes=(base, candidate),
        repeats=repeats,
        conversions=conversions,
        seed=session.seed,
        samples=tuple(samples),
    )
