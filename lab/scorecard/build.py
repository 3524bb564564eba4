"""From runs to the card of one model: cells with their reasons, ratios, percent of limits, the frontier. Pure."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

from lab.ceilings import Artifact, Floor
from lab.config import MachineConf
from lab.estimate import Estimate, counted, ratio, timing
from lab.frontier import AXES, FrontierResult, Recipe, frontier
from lab.quality import Quality
from lab.recipes import AGAIN, REFERENCE, RecipeSpec
from lab.scorecard.card import Cell, ModelCard, Row
from lab.scorecard.history import points
from lab.scorecard.pools import Units, newest_pool, units_of, usable
from lab.scorecard.runs import Run
from lab.scorecard.steadiness import aa_reasons, log_ratios, machine_reasons, spread_reasons

TIMED = ("decode_tok_s", "prefill_tok_s", "ttft_ms", "tpot_ms", "rss_bytes")
COUNTED = ("peak_bytes", "kv_bytes")
RATIOS = {"decode_ratio": "decode_tok_s", "prefill_ratio": "prefill_tok_s"}
COUNTED_SPREAD = 0.01
NO_NUMBER = "a stored value is no positive number"

Judge = Callable[[Sequence[float], Estimate], tuple[str, ...]]


def build_model(runs: Sequence[Run], label: str = "") -> ModelCard | None:
    """The card of one model from all of its runs on one machine, oldest first; None where no run can be shown. `label`:
    "" for the timed model's name."""
    left_out = [why for run in runs if (why := usable(run))]
    kept = [run for run in runs if not usable(run)]
    if not kept:
        return None
    pool = newest_pool(kept)
    newest = pool[-1]
    assert newest.profile is not None
    if kept[-1].uid != newest.uid:
        left_out.append(f"run {kept[-1].uid} is newer, and its profile is {_profile(kept[-1])}")
    live = [spec for spec in newest.specs if spec.name not in newest.refused]
    units = units_of(pool, [*(spec.name for spec in live), AGAIN])
    aa, gaps = _aa(units)
    judge = _judge(pool, units, aa, gaps)
    artifact = newest.artifacts.get(newest.timing_model)
    cells = {s.name: recipe_cells(s, units, newest.quality.get(s.name), artifact, judge) for s in live}
    verdict, off, no_frontier = _frontier([s.name for s in live], units, newest.quality, artifact, cells)
    rows = tuple(_row(spec, newest, cells, verdict, off, artifact) for spec in newest.specs)
    notes = (*newest.notes, *_single(units, newest.limits))
    return ModelCard(
        label=label or newest.timing_model,
        model=newest.model,
        timing_model=newest.timing_model,
        profile=newest.profile,
        runs=tuple(pool),
        unit=units.kind,
        units=units.count,
        rows=rows,
        ceilings=newest.ceilings,
        artifacts=newest.artifacts,
        floor=_floor(newest, cells.get(REFERENCE.name, {}), artifact),
        frontier=verdict,
        no_frontier=no_frontier,
        aa=aa,
        history=points(kept, newest),
        notes=notes,
        left_out=tuple(left_out),
    )


def _profile(run: Run) -> str:
    return run.profile.name if run.profile else "unknown"


def _single(units: Units, limits: MachineConf) -> tuple[str, ...]:
    said = () if units.kind == "launch" else ("One launch: intervals are over its rounds and hold no launch effect.",)
    shared = "A machine that is shared with others: what depends on its clock only screens."
    return (*said, *((shared,) if limits.name == "shared" else ()))


def _aa(units: Units) -> tuple[Cell, list[float]]:
    """(the reference against itself, the logs of its ratios by launch)."""
    if AGAIN not in units.of or REFERENCE.name not in units.of or units.kind != "launch":
        return Cell.absent("no A/A in these runs"), []
    again, base = units.values(AGAIN, "decode_tok_s"), units.values(REFERENCE.name, "decode_tok_s")
    if not all(map(math.isfinite, (*again, *base))):
        return Cell.absent(NO_NUMBER), []
    return Cell(ratio(again, base), "stable"), log_ratios(again, base)


def _judge(pool: Sequence[Run], units: Units, aa: Cell, gaps: Sequence[float]) -> Judge:
    """(values by unit, their estimate) -> each reason why the number is not to be believed."""
    limits = pool[-1].limits
    steal = [sample.steal for name in units.of for sample in units.samples(name)]
    always = [*aa_reasons(aa, gaps, limits)]
    always += machine_reasons(steal, [sensor for run in pool for sensor in run.sensors], limits)

    def judge(values: Sequence[float], estimate: Estimate) -> tuple[str, ...]:
        return (*spread_reasons(values, estimate, units.kind, limits), *dict.fromkeys(always))

    return judge


def recipe_cells(
    spec: RecipeSpec, units: Units, quality: Quality | None, artifact: Artifact | None, judge: Judge
) -> dict[str, Cell]:
    """Every number of one recipe that ran."""
    cells = {name: _timed(units, spec.name, name, judge) for name in TIMED}
    cells |= {name: _counted(units, spec.name, name) for name in COUNTED}
    for name, of in RATIOS.items():
        cells[name] = _ratio(units, spec.name, of, judge)
    if artifact is None or spec.stack.startswith("openai:"):
        why = "a server's model file is not known" if artifact else "no artifact is stored"
        cells |= {name: Cell.absent(why) for name in ("artifact_bytes", "bpw")}
    else:
        cells["artifact_bytes"] = Cell(counted([artifact.artifact_bytes]), "stable")
        cells["bpw"] = Cell(counted([artifact.bpw]), "stable")
    return cells | _quality(quality)


def _known(units: Units, recipe: str, metric: str) -> list[float] | Cell:
    if recipe not in units.of:
        return Cell.absent("no complete launch")
    raw = [sample.__dict__[metric] for sample in units.samples(recipe)]
    if not raw or any(value is None for value in raw):
        return Cell.absent("a server does not tell")
    if not all(math.isfinite(value) and value > 0 for value in raw):
        return Cell.absent(NO_NUMBER)
    return [float(value) for value in raw]


def _timed(units: Units, recipe: str, metric: str, judge: Judge) -> Cell:
    raw = _known(units, recipe, metric)
    if isinstance(raw, Cell):
        return raw
    values = units.values(recipe, metric)
    estimate = timing(values)
    reasons = judge(values, estimate)
    return Cell(estimate, "unstable" if reasons else "stable", reasons)


def _ratio(units: Units, recipe: str, metric: str, judge: Judge) -> Cell:
    if recipe == REFERENCE.name:
        return Cell.absent("the reference itself")
    for name in (recipe, REFERENCE.name):
        raw = _known(units, name, metric)
        if isinstance(raw, Cell):
            return Cell.absent(f"{name}: {raw.reasons[0]}")
    own, base = units.values(recipe, metric), units.values(REFERENCE.name, metric)
    estimate = ratio(own, base)
    reasons = judge([a / b for a, b in zip(own, base, strict=True)], estimate)
    return Cell(estimate, "unstable" if reasons else "stable", reasons)


def _counted(units: Units, recipe: str, metric: str) -> Cell:
    """The largest of its repeats, which agree within a percent."""
    raw = _known(units, recipe, metric)
    if isinstance(raw, Cell):
        return raw
    spread = (max(raw) - min(raw)) / max(raw)
    reasons = () if spread <= COUNTED_SPREAD else (f"spread of the counts {100 * spread:.2f} %, above 1 %",)
    return Cell(counted(raw), "unstable" if reasons else "stable", reasons)


def _quality(quality: Quality | None) -> dict[str, Cell]:
    names = ("kl_nats", "perplexity", "top1_agreement")
    if quality is None:
        return dict.fromkeys(names, Cell.absent("no logits were scored"))
    if not all(map(math.isfinite, (*quality.kl_units, *quality.nll_units))) or not quality.kl_units:
        return dict.fromkeys(names, Cell.absent("a stored value is no number"))
    return {
        "kl_nats": Cell(quality.kl, "stable"),
        "perplexity": Cell(quality.perplexity, "stable"),
        "top1_agreement": Cell(Estimate(quality.top1, None, None, quality.scored, "none"), "stable"),
    }


def _frontier(
    names: Sequence[str],
    units: Units,
    quality: Mapping[str, Quality],
    artifact: Artifact | None,
    cells: Mapping[str, Mapping[str, Cell]],
) -> tuple[FrontierResult | None, dict[str, str], str]:
    """(who stands on the frontier, recipe -> why it has no place there, why there is none at all)."""
    off = {}
    for name in names:
        lacking = [axis.name for axis in AXES if cells[name][axis.name].estimate is None]
        if lacking:
            off[name] = f"no {', '.join(lacking)}: {cells[name][lacking[0]].reasons[0]}"
    if REFERENCE.name not in names or REFERENCE.name in off:
        return None, off, f"the reference, {REFERENCE.name}, has no numbers on all axes"
    assert artifact is not None
    placed = [name for name in names if name not in off]
    recipes = [
        Recipe(
            name,
            {
                "decode_tok_s": units.values(name, "decode_tok_s"),
                "peak_bytes": [max(float(s.peak_bytes or 0) for s in units.samples(name))],
                "artifact_bytes": [float(artifact.artifact_bytes)],
                "kl_nats": list(quality[name].kl_units),
            },
        )
        for name in placed
    ]
    stacks = list(dict.fromkeys(name.rsplit(" ", 1)[0] for name in placed))
    groups = {stack: [name for name in placed if name.rsplit(" ", 1)[0] == stack] for stack in stacks}
    return frontier(recipes, reference=REFERENCE.name, axes=AXES, groups=groups), off, ""


def _floor(run: Run, cells: Mapping[str, Cell], artifact: Artifact | None) -> Floor | None:
    """The least time of the workload with this recipe's cache, where ceilings and artifact are known."""
    kv = cells.get("kv_bytes")
    if run.ceilings is None or artifact is None or run.profile is None or kv is None or kv.value is None:
        return None
    return Floor.of(artifact, round(kv.value), run.profile.prompt_tokens, run.ceilings)


def _row(
    spec: RecipeSpec,
    run: Run,
    cells: Mapping[str, Mapping[str, Cell]],
    verdict: FrontierResult | None,
    off: Mapping[str, str],
    artifact: Artifact | None,
) -> Row:
    name = spec.name
    if name in run.refused:
        return Row(spec, why_not=run.refused[name])
    own = cells[name]
    if all(cell.estimate is None for cell in own.values()):
        return Row(spec, why_not="no complete set of samples")
    floor = _floor(run, own, artifact)
    decode, prefill = own["decode_tok_s"].value, own["prefill_tok_s"].value
    placed = verdict is not None and name not in off
    quality = run.quality.get(name)
    return Row(
        spec,
        cells=own,
        decode_percent=floor.decode_percent(decode) if floor and decode else None,
        prefill_percent=floor.prefill_percent(prefill) if floor and prefill else None,
        on_frontier=verdict.on[name] if verdict and placed else None,
        p_frontier=verdict.p_on[name] if verdict and placed else None,
        dominated_by=verdict.dominated_by[name] if verdict and placed else (),
        off_frontier=off.get(name, ""),
        same_bits_as=(quality.same_bits_as or "") if quality else "",
        checked=quality.checked if quality else 0,
    )
