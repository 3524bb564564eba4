"""What the stored samples of a device bench say: one row a cell, and where a step's time goes. From the database alone.

A cell whose whole protocol is not there yet, or is not planned, is a screen: its ratio is shown with what interval its
launches give, and nothing is claimed of it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from lab.batch_bench import BatchSample
from lab.bench_tables import BenchEventRow, BenchRunRow, BenchSampleRow
from lab.device_ceilings import DeviceCeilings
from lab.device_ledger import TASK, whole_launches
from lab.device_plan import AA_LAUNCHES, LOOKS, Cell, Part, make_turns
from lab.graph_bench import Limits, geometric_mean
from lab.measure import full_launches, group_quads
from lab.paired import QUADS_PER_LAUNCH
from lab.scrub import scrub
from lab.stats import launch_means, t_bounds, take_look, wilcoxon_two_sided
from lab.store import Store
from lab.tables import CodeRow, EnvRow, MachineRow

METRICS = ("decode_tok_s", "agg_tok_s", "prefill_tok_s", "ttft_ms")
AA_LEVEL = 0.05
SCREEN = "screen"


@dataclass(frozen=True)
class Ratio:
    """Engine over mlx-lm, above 1 where the engine is better. low, high: 95 %, None for one launch."""

    value: float
    low: float | None
    high: float | None
    engine: float
    other: float


@dataclass(frozen=True, kw_only=True)
class CellReport:
    """`launches`: whole ones of A/B and of A/A. ratios: metric -> ratio. verdict: "screen", "not run", or of the
    protocol. aa: decode speed of mlx-lm over itself. limit_share: the engine's and mlx-lm's decode speed over the most
    that the device's memory allows.
    """

    cell: str
    launches: tuple[int, int]
    ratios: Mapping[str, Ratio]
    peaks: tuple[int, int] | None
    limit_share: tuple[float, float] | None
    prefill_share: tuple[float, float] | None
    verdict: str
    why: str
    aa: Ratio | None = None


@dataclass(frozen=True, kw_only=True)
class Report:
    """`hosts`: cell, stack and the seconds of `oracles.host_timing`; runs: when, with which versions and command."""

    machine_key: str
    machine: Mapping[str, Any]
    ceilings: Mapping[str, float]
    cells: tuple[CellReport, ...]
    hosts: tuple[Mapping[str, Any], ...]
    runs: tuple[Mapping[str, Any], ...]


def read_report(store: Store, machine_key: str, cells: Sequence[Cell] | None = None) -> Report:
    """The newest setup of each cell that was measured on this kind of machine, and the planned ones that were not.

    cells: those to show; None: all of the plan, behind them others that have samples.
    """
    machines = {row.id: row for row in store.rows(MachineRow) if row.key == machine_key}
    runs = {row.id: row for row in store.rows(BenchRunRow, task=TASK) if row.machine_id in machines}
    samples = [row for row in store.rows(BenchSampleRow) if row.run_id in runs]
    planned = list(dict.fromkeys(cell for turn in make_turns() for cell in turn.cells)) if cells is None else cells
    full = {cell.name for cell in planned if cell.full}
    names = [cell.name for cell in planned]
    names += [name for name in dict.fromkeys(row.cell for row in samples) if name not in names] if cells is None else []
    refusals = {
        str(event.detail["cell"]): str(event.detail["why"])
        for event in store.rows(BenchEventRow, event="refused")
        if event.run_id in runs
    }
    abouts = {run.id: run.about for run in runs.values()}
    newest = max(runs, default=0)
    return Report(
        machine_key=machine_key,
        machine=dict(machines[runs[newest].machine_id].facts) if runs else {},
        ceilings=dict(abouts[newest]["ceilings"]) if runs else {},
        cells=tuple(_cell(name, name in full, samples, abouts, refusals.get(name, "")) for name in names),
        hosts=tuple(_hosts(samples)),
        runs=tuple(_run(store, run) for run in runs.values()),
    )


def _run(store: Store, run: BenchRunRow) -> dict[str, Any]:
    code, env = store.rows(CodeRow, id=run.code_id)[0], store.rows(EnvRow, id=run.env_id)[0]
    source = f"{code.git_sha[:12]}{' (dirty)' if code.dirty else ''}"
    names = ("mlx", "mlx-lm")
    versions = {"python": env.python} | {name: env.packages.get(name, "") for name in names}
    return {"started": run.started, "command": scrub(run.command), "source": source, "versions": versions}


def _cell(
    name: str, full: bool, rows: Sequence[BenchSampleRow], abouts: Mapping[int, Mapping[str, Any]], refused: str
) -> CellReport:
    mine = [row for row in rows if row.cell == name and row.part != "host"]
    mine = [row for row in mine if row.setup_sha256 == mine[-1].setup_sha256]
    parts = {part: whole_launches([row for row in mine if row.part == part]) for part in ("ab", "aa")}
    counts = (len(parts["ab"]), len(parts["aa"]))
    kept = [s for launch in parts["ab"].values() for s in launch if not s.warm_up]
    if not kept:
        why = refused or "its turn did not come yet"
        nothing: dict[str, Any] = {"ratios": {}, "peaks": None, "limit_share": None, "prefill_share": None}
        return CellReport(cell=name, launches=counts, verdict="not run", why=why, **nothing)
    ratios = {metric: _ratio(kept, metric) for metric in METRICS}
    itself = [s for launch in parts["aa"].values() for s in launch if not s.warm_up]
    about = abouts[mine[-1].run_id]
    verdict, why = _verdict(parts, full)
    return CellReport(
        cell=name,
        launches=counts,
        ratios=ratios,
        peaks=_peaks(kept),
        limit_share=_share(kept, ratios, about, name),
        prefill_share=_prefill_share(kept, ratios, about, name),
        verdict=verdict,
        why=why,
        aa=_ratio(itself, "decode_tok_s", "aa") if itself else None,
    )


def _ratio(samples: Sequence[BatchSample], metric: str, part: Part = "ab") -> Ratio:
    means = launch_means(full_launches(group_quads(samples, part), metric, QUADS_PER_LAUNCH))
    low, high = (math.exp(b) if math.isfinite(b) else None for b in t_bounds(means, 0.025))
    return Ratio(
        value=math.exp(math.fsum(means) / len(means)),
        low=low,
        high=high,
        engine=geometric_mean(samples, "candidate", metric),
        other=geometric_mean(samples, "base", metric),
    )


def _peaks(samples: Sequence[BatchSample]) -> tuple[int, int]:
    """(engine, mlx-lm): the largest of each."""
    engine, other = (max(s.peak_bytes for s in samples if s.role == role) for role in ("candidate", "base"))
    return engine, other


def _verdict(parts: Mapping[str, Mapping[int, Sequence[BatchSample]]], full: bool) -> tuple[str, str]:
    """Of decode speed, by the protocol of a quiet machine; a screen until all that it asks for is there."""
    ab, aa = len(parts["ab"]), len(parts["aa"])
    if not full:
        return SCREEN, "one launch is planned"
    look = max((look for look in LOOKS if ab >= look[0]), default=None)
    if look is None or aa < AA_LAUNCHES:
        return SCREEN, f"{ab} of {LOOKS[0][0]} launches, {aa} of {AA_LAUNCHES} of A/A"
    means = {part: _launches(parts[part], part) for part in ("ab", "aa")}
    p = wilcoxon_two_sided(launch_means(means["aa"]))
    if p <= AA_LEVEL:
        return "unstable", f"the A/A differs from itself, p = {p:.3f}"
    found = take_look(means["ab"][: look[0]], look[1], Limits.of("quiet").half_width)
    if found.win:
        return "faster", f"p = {found.p_wilcoxon:.4f} after {look[0]} launches, at least {100 * found.bound_low:.1f} %"
    return "slower" if found.high < 0 else "undecided", f"p = {found.p_wilcoxon:.4f} after {look[0]} launches"


def _launches(parts: Mapping[int, Sequence[BatchSample]], part: Any) -> list[list[float]]:
    samples = [s for launch in sorted(parts) for s in parts[launch] if not s.warm_up]
    return full_launches(group_quads(samples, part), "decode_tok_s", QUADS_PER_LAUNCH)


def _share(
    samples: Sequence[BatchSample], ratios: Mapping[str, Ratio], about: Mapping[str, Any], name: str
) -> tuple[float, float]:
    """Decode speed of both sides over the memory's limit: weights once a step, each row's cache once."""
    rows, counts = _rows(name), about["models"][_model(name)]
    kv_bytes = max(s.kv_bytes for s in samples if s.role == "base")
    step_s = (counts["decode_bytes"] + rows * kv_bytes) / DeviceCeilings(**about["ceilings"]).bytes_per_s
    speed = ratios["decode_tok_s"]
    return speed.engine * step_s / rows, speed.other * step_s / rows


def _prefill_share(
    samples: Sequence[BatchSample], ratios: Mapping[str, Ratio], about: Mapping[str, Any], name: str
) -> tuple[float, float]:
    """Prompt tokens a second of both sides over what the measured product rate allows."""
    counts = about["models"][_model(name)]
    token_s = counts["prefill_flops"] / (1e12 * about["ceilings"]["bf16_tflop_s"])
    speed = ratios["prefill_tok_s"]
    return speed.engine * token_s, speed.other * token_s


def _rows(cell: str) -> int:
    return int(cell.rsplit("x", 1)[1])


def _model(cell: str) -> str:
    return " ".join(cell.split(",")[0].split(" ")[:2])


def _hosts(rows: Sequence[BenchSampleRow]) -> list[dict[str, Any]]:
    """The newest of each group and stack."""
    found = {}
    for row in rows:
        if row.part == "host":
            group = row.cell.rsplit(",", 1)[0]
            found[group, row.document["stack"]] = {"group": group} | dict(row.document)
    return list(found.values())
