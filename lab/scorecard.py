"""The scorecard as data: everything the page prints, put together from samples, quality, ceilings and stages. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from lab.ceilings import Artifact, Ceilings, Floor
from lab.estimate import Estimate, counted, ratio, timing
from lab.frontier import AXES, NEW_FRONTIER_P, FrontierResult, Recipe, frontier
from lab.metrics import TOO_WIDE, metric, show
from lab.quality import Quality
from lab.recipes import REFERENCE_STACK, Profile, RecipeSpec, Sample
from oracles.contract import STACKS

TIMED = ("decode_tok_s", "prefill_tok_s", "ttft_ms", "tpot_ms", "rss_bytes")
COUNTED = ("peak_bytes", "kv_bytes")
REFERENCE = RecipeSpec(REFERENCE_STACK, "native").name


@dataclass(frozen=True)
class StageResult:
    """What another stage concluded. `verdict` is its own words; `cells`: (what, result) lines to print beside it."""

    name: str
    verdict: str
    ok: bool
    row: str | None = None
    reasons: tuple[str, ...] = ()
    cells: tuple[tuple[str, str], ...] = ()
    seconds: float = 0.0


@dataclass(frozen=True)
class Provenance:
    """Where the numbers come from."""

    command: str
    date: str
    commit: str
    machine: Mapping[str, object]
    versions: Mapping[str, str]
    model: str
    timing_model: str


@dataclass(frozen=True)
class Row:
    """One recipe. `why_not`: the reason it did not run, and then nothing else is filled."""

    spec: RecipeSpec
    why_not: str | None = None
    metrics: Mapping[str, Estimate] = field(default_factory=dict)
    decode_ratio: Estimate | None = None
    prefill_ratio: Estimate | None = None
    decode_percent: float | None = None
    prefill_percent: float | None = None
    on_frontier: bool | None = None
    p_frontier: float | None = None
    dominated_by: tuple[str, ...] = ()
    same_bits_as: str | None = None
    checked: int = 0

    @property
    def name(self) -> str:
        return self.spec.name


@dataclass(frozen=True)
class Scorecard:
    """`stage_s`: measured seconds of each stage. `notes`: what was cut or is unusual, in whole sentences."""

    provenance: Provenance
    profile: Profile
    ceilings: Ceilings
    artifacts: Mapping[str, Artifact]
    floor: Floor
    rows: tuple[Row, ...]
    frontier: FrontierResult
    parity: StageResult
    experiment: StageResult
    notes: tuple[str, ...]
    samples: tuple[Sample, ...]
    stage_s: Mapping[str, float]

    def row(self, name: str) -> Row:
        return next(row for row in self.rows if row.name == name)

    @property
    def measured(self) -> list[Row]:
        return [row for row in self.rows if row.why_not is None]


def _of(samples: Sequence[Sample], name: str) -> list[float]:
    """One metric of one recipe's samples, by round."""
    return [float(sample.__dict__[name]) for sample in sorted(samples, key=lambda s: s.round)]


def build_rows(
    specs: Sequence[RecipeSpec],
    samples: Sequence[Sample],
    quality: Mapping[str, Quality],
    refused: Mapping[str, str],
    artifact: Artifact,
    ceilings: Ceilings,
    profile: Profile,
) -> tuple[tuple[Row, ...], FrontierResult, Floor]:
    """Estimates, ratios to the reference recipe (which must have run), percent of the limits, and the frontier."""
    by_name = {spec.name: [s for s in samples if s.recipe == spec.name] for spec in specs}
    running = [spec for spec in specs if spec.name not in refused and by_name[spec.name] and spec.name in quality]
    recipes = [
        Recipe(
            spec.name,
            {
                "decode_tok_s": _of(by_name[spec.name], "decode_tok_s"),
                "peak_bytes": [max(_of(by_name[spec.name], "peak_bytes"))],
                "artifact_bytes": [float(artifact.artifact_bytes)],
                "kl_nats": list(quality[spec.name].kl_units),
            },
        )
        for spec in running
    ]
    groups = {stack: [s.name for s in running if s.stack == stack] for stack in STACKS}
    verdict = frontier(recipes, reference=REFERENCE, axes=AXES, groups={k: v for k, v in groups.items() if v})
    base = by_name[REFERENCE]
    rows = []
    for spec in specs:
        if spec not in running:
            rows.append(Row(spec, why_not=refused.get(spec.name, "no complete set of samples")))
            continue
        own, scores = by_name[spec.name], quality[spec.name]
        metrics = {name: timing(_of(own, name)) for name in TIMED}
        metrics |= {name: counted(_of(own, name)) for name in COUNTED}
        metrics["artifact_bytes"] = counted([artifact.artifact_bytes])
        metrics["bpw"] = counted([artifact.bpw])
        metrics["kl_nats"], metrics["perplexity"] = scores.kl, scores.perplexity
        metrics["top1_agreement"] = Estimate(scores.top1, None, None, scores.scored, "none")
        floor = Floor.of(artifact, round(metrics["kv_bytes"].value), profile.prompt_tokens, ceilings)
        rows.append(
            Row(
                spec,
                metrics=metrics,
                decode_ratio=None if spec.name == REFERENCE else _ratio(own, base, "decode_tok_s"),
                prefill_ratio=None if spec.name == REFERENCE else _ratio(own, base, "prefill_tok_s"),
                decode_percent=floor.decode_percent(metrics["decode_tok_s"].value),
                prefill_percent=floor.prefill_percent(metrics["prefill_tok_s"].value),
                on_frontier=verdict.on[spec.name],
                p_frontier=verdict.p_on[spec.name],
                dominated_by=verdict.dominated_by[spec.name],
                same_bits_as=scores.same_bits_as,
                checked=scores.checked,
            )
        )
    base_floor = Floor.of(artifact, round(max(_of(base, "kv_bytes"))), profile.prompt_tokens, ceilings)
    return tuple(rows), verdict, base_floor


def _ratio(own: Sequence[Sample], base: Sequence[Sample], name: str) -> Estimate:
    return ratio(_of(own, name), _of(base, name))


def compare_words(estimate: Estimate | None, faster: str, slower: str, subject: str) -> str:
    """A ratio in words that claim no more than its interval does."""
    if estimate is None or estimate.low is None or estimate.high is None:
        return f"{subject}: no interval, so nothing is claimed"
    ends = f"{estimate.low:.2f} to {estimate.high:.2f}"
    if estimate.high / estimate.low > TOO_WIDE:
        ends = f"wider than ×{TOO_WIDE:.0f}: the machine was too busy"
    span = f"{estimate.value:.2f}× (95 % interval {ends})"
    if estimate.low > 1:
        return f"{subject}: {faster}, {span}"
    if estimate.high < 1:
        return f"{subject}: {slower}, {span}"
    return f"{subject}: no difference shown, {span}"


def headline(card: Scorecard) -> str:
    """The page's first sentence: what decode speed against the reference shows, on the recipe both share."""
    row = card.row("engine native")
    if row.why_not is not None:
        return f"The engine's native recipe did not run: {row.why_not}"
    assert row.decode_ratio is not None
    ratio_, stack = row.decode_ratio, REFERENCE_STACK
    if ratio_.low is None or ratio_.high is None:
        return f"The engine decodes at {ratio_.value:.2f}× {stack}; with one round there is no interval"
    if ratio_.high / ratio_.low > TOO_WIDE:
        return f"Too noisy a run to compare the engine’s speed with {stack}"
    if ratio_.low <= 1 <= ratio_.high:
        return f"No difference shown in decode speed between the engine and {stack}"
    claim = f"he engine decodes {ratio_.value:.2f}× as fast as {stack}"
    return f"Screened, not decided: t{claim}" if card.profile.name == "quick" else f"T{claim}"


def findings(card: Scorecard) -> list[str]:
    """The lines under the headline, each one a computed statement."""
    lines = []
    native = card.row("engine native")
    if native.why_not is None:
        lines.append(
            compare_words(native.decode_ratio, "faster", "slower", f"Decode, engine against {REFERENCE_STACK}")
        )
        lines.append(
            compare_words(native.prefill_ratio, "faster", "slower", f"Prefill, engine against {REFERENCE_STACK}")
        )
        for kv in ("kv8", "kv4"):
            row = card.row(f"engine {kv}")
            if row.why_not is None:
                saved = 1 - row.metrics["kv_bytes"].value / native.metrics["kv_bytes"].value
                kl = row.metrics["kl_nats"]
                lines.append(
                    f"{kv} makes the KV cache {100 * saved:.0f} % smaller for {show('kl_nats', kl.value)} nats"
                )
    likely = [row.name for row in card.measured if (row.p_frontier or 0) >= NEW_FRONTIER_P]
    if likely:
        lines.append(f"On the frontier with probability {NEW_FRONTIER_P} or more: {', '.join(likely)}")
    return lines


def summary(card: Scorecard, page: str) -> dict[str, object]:
    """The JSON document of the command's last line."""
    return {
        "scorecard": page,
        "headline": headline(card),
        "parity": {"verdict": card.parity.verdict, "ok": card.parity.ok},
        "verdict": card.experiment.verdict,
        "experiment": {"name": card.experiment.name, "row": card.experiment.row, "reasons": card.experiment.reasons},
        "profile": card.profile.name,
        "machine": card.ceilings.machine,
        "model": card.provenance.model,
        "timing_model": card.provenance.timing_model,
        "ceilings": card.ceilings.as_dict(),
        "context_tokens": card.profile.context,
        "rows": [row_document(row) for row in card.rows],
        "hypervolume": {k: list(v) for k, v in card.frontier.hypervolume.items()},
        "notes": list(card.notes),
        "stage_s": {k: round(v, 1) for k, v in card.stage_s.items()},
    }


def row_document(row: Row) -> dict[str, object]:
    """One recipe as JSON."""
    if row.why_not is not None:
        return {"recipe": row.name, "not_run": row.why_not}
    values = {
        metric(name).name: {"value": e.value, "low": e.low, "high": e.high, "n": e.n} for name, e in row.metrics.items()
    }
    return {
        "recipe": row.name,
        "on_frontier": row.on_frontier,
        "p_frontier": row.p_frontier,
        "decode_percent_of_limit": row.decode_percent,
        "prefill_percent_of_limit": row.prefill_percent,
        "kl_same_bits_as": row.same_bits_as,
        **values,
    }
