"""Parity: the engine and an oracle run the same probe now, each in its own process, and every value must be equal."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from engine import errors
from oracles.client import Worker
from oracles.compare import Difference, compare_arrays, compare_tokens, first_layer
from oracles.contract import GenerateProbe, OracleCrashed, OracleRefused, Probe, SchemeNotLive, StackConfig, Trace
from oracles.live import require_scheme

EQUAL, DIFFERS, FAILED = "equal", "differs", "failed"
NOT_RUN, NOT_BUILT, NOT_CLAIMED = "not run", "not built", "not claimed: OpenBLAS"
BAD = (DIFFERS, FAILED)


@dataclass(frozen=True, kw_only=True)
class Cell:
    """One comparison.

    name: the model as a reader knows it; dtype: of the activations, with the weights' packing where there is one.
    probe: what both sides run; steps: decode steps in it. reference: "mlx-lm", "optiq" or "engine" (the engine against
    itself at another chunk, an equality between shapes). reference_model: another folder on the reference's side.
    """

    name: str
    dtype: str
    model: str
    probe: Probe | GenerateProbe
    steps: int
    kv: str = "native"
    chunk: int = 2048
    reference: str = "mlx-lm"
    reference_chunk: int | None = None
    reference_model: str | None = None

    @property
    def kind(self) -> str:
        """How the tokens come: "forced", "greedy" or "sampled"."""
        if isinstance(self.probe, Probe):
            return "forced"
        return "sampled" if self.probe.sampling.get("temperature", 0) else "greedy"

    def configs(self, blas: str) -> tuple[StackConfig, StackConfig]:
        """(engine, reference)."""
        ours = StackConfig(stack="engine", model=self.model, kv=self.kv, chunk=self.chunk, blas=blas)
        theirs = replace(
            ours,
            stack=self.reference,
            model=self.reference_model or self.model,
            chunk=self.reference_chunk or self.chunk,
        )
        return ours, theirs


@dataclass(frozen=True)
class CellResult:
    """`status` is one of the module's words; `why` says it in a line; `bisect`: the first layer that differs."""

    cell: Cell
    status: str
    why: str = ""
    difference: Difference | None = None
    positions: int = 0
    distinct_tokens: int = 0
    bisect: Difference | None = None
    versions: dict[str, str] | None = None

    def as_dict(self) -> dict[str, Any]:
        """JSON form of a row of the table."""
        return {
            "model": self.cell.name,
            "dtype": self.cell.dtype,
            "kv": self.cell.kv,
            "chunk": self.cell.chunk,
            "kind": self.cell.kind,
            "reference": self.cell.reference,
            "prompt": len(self.cell.probe.token_ids) - (self.cell.steps if self.cell.kind == "forced" else 0),
            "steps": self.cell.steps,
            "status": self.status,
            "why": self.why,
            "positions": self.positions,
            "distinct_tokens": self.distinct_tokens,
            "difference": self.difference.as_dict() if self.difference else None,
            "bisect": self.bisect.as_dict() if self.bisect else None,
            "reference_versions": self.versions,
        }


class Side:
    """A worker that may refuse: keeps the refusal instead of raising it."""

    def __init__(self, config: StackConfig) -> None:
        self.config = config
        self.worker: Worker | None = None
        self.error: errors.FrontierError | None = None

    def run(self, action: Callable[[Worker], Trace | None]) -> Trace | None:
        """Do something with the worker; None when it is not there or refuses, with the reason in `error`."""
        if self.worker is None:
            return None
        self.error = None
        try:
            return action(self.worker)
        except (OracleRefused, OracleCrashed) as error:
            self.error = error
            return None


def run_cells(
    cells: Sequence[Cell], *, blas: str, bisect: bool = False, progress: Callable[[str, int, int], None] | None = None
) -> Iterator[CellResult]:
    """Run the cells in order and yield each result. Neighbours of one configuration share their two workers.

    progress(label, done, total) is called before each cell and once at the end.
    """
    tell = progress or (lambda label, done, total: None)
    with contextlib.ExitStack() as workers:
        sides: tuple[Side, Side] | None = None
        for done, cell in enumerate(cells):
            tell(f"{cell.name} {cell.dtype} {cell.kv} {cell.kind}", done, len(cells))
            if cell.reference == "engine" and blas != "bundled":
                yield CellResult(cell, NOT_CLAIMED, "equality between shapes holds with the bundled BLAS only")
                continue
            if sides is None or (sides[0].config, sides[1].config) != cell.configs(blas):
                workers.close()
                sides = _start(cell.configs(blas), workers)
            yield _run_cell(cell, sides, bisect)
        tell("done", len(cells), len(cells))


def _start(configs: tuple[StackConfig, StackConfig], workers: contextlib.ExitStack) -> tuple[Side, Side]:
    """Start both workers, loading side by side."""
    sides = Side(configs[0]), Side(configs[1])
    for side in sides:
        side.worker = workers.enter_context(Worker(side.config, wait=False))
    for side in sides:
        assert side.worker is not None
        try:
            side.worker.wait_ready()
        except (OracleRefused, OracleCrashed) as error:
            side.error, side.worker = error, None
    return sides


def _run_cell(cell: Cell, sides: tuple[Side, Side], bisect: bool) -> CellResult:
    ours, theirs = _both(cell.probe, sides)
    verdict = _refusal(cell, sides, ours, theirs)
    if verdict is not None:
        return verdict
    assert ours is not None
    assert theirs is not None
    try:
        for trace in (theirs, ours):
            require_scheme(trace, cell.kv)
    except SchemeNotLive as error:
        return CellResult(cell, FAILED, str(error))
    difference = compare_traces(theirs, ours)
    name = next(iter(theirs.tensors))
    result = CellResult(
        cell,
        EQUAL if difference is None else DIFFERS,
        difference=difference,
        positions=int(theirs.tensors[name].shape[0]),
        distinct_tokens=len(set(theirs.doc.get("tokens", ()))),
        versions=dict(theirs.doc["versions"]),
    )
    if difference is not None and bisect:
        return replace(result, bisect=_bisect(cell, sides, theirs))
    return result


def _both(probe: Probe | GenerateProbe, sides: tuple[Side, Side]) -> tuple[Trace | None, Trace | None]:
    """Run one probe on both sides at the same time."""
    asked = []
    for side in sides:
        side.run(lambda worker: worker.ask(probe))
        asked.append(side.worker is not None and side.error is None)
    ours, theirs = (
        side.run(lambda worker: worker.answer()) if ok else None for side, ok in zip(sides, asked, strict=True)
    )
    return ours, theirs


def _refusal(cell: Cell, sides: tuple[Side, Side], ours: Trace | None, theirs: Trace | None) -> CellResult | None:
    """The verdict where a side did not answer. Only the reference's own refusal excuses a cell."""
    ours_error, theirs_error = sides[0].error, sides[1].error
    if theirs is None:
        status = NOT_RUN if isinstance(theirs_error, OracleRefused) and cell.reference != "engine" else FAILED
        return CellResult(cell, status, _one_line(theirs_error))
    if ours is None:
        not_built = isinstance(ours_error, OracleRefused) and ours_error.kind == errors.NotBuilt.__name__
        return CellResult(cell, NOT_BUILT if not_built else FAILED, _one_line(ours_error))
    return None


def compare_traces(reference: Trace, candidate: Trace) -> Difference | None:
    """Tokens first, then the arrays, then which scheme each position attended."""
    found = compare_tokens(reference.doc.get("tokens", ()), candidate.doc.get("tokens", ()))
    if found is not None:
        gap = _top_gap(reference, found.position)
        return replace(found, why=found.why + gap)
    for name in reference.tensors:
        found = compare_arrays(name, reference.tensors[name], candidate.tensors[name])
        if found is not None:
            return found
    live, ours = reference.doc.get("kv_live", []), candidate.doc.get("kv_live", [])
    if list(live) != list(ours):
        at = next((i for i, (a, b) in enumerate(zip(live, ours, strict=False)) if a != b), min(len(live), len(ours)))
        return Difference("kv_live", "the positions attended different schemes", at)
    return None


def _top_gap(reference: Trace, step: int | None) -> str:
    """The reference's distance from best to second best at the step where tokens part: a tie or a real difference."""
    rows = reference.tensors.get("logprobs")
    if rows is None or step is None or step >= rows.shape[0]:
        return ""
    import mlx.core as mx

    best = mx.sort(rows[step].astype(mx.float32))
    return f" (reference's top-1/top-2 gap {(best[-1] - best[-2]).item():.3g})"


def _bisect(cell: Cell, sides: tuple[Side, Side], theirs: Trace) -> Difference | None:
    """Run the cell's tokens teacher-forced with every layer's output kept, and find the first layer that differs."""
    ids = cell.probe.token_ids
    if isinstance(cell.probe, Probe):
        probe = replace(cell.probe, want=("logits", "layers"))
    else:
        tail = tuple(theirs.doc["tokens"])
        probe = Probe(token_ids=ids + tail, tail=len(tail) + 1, want=("logits", "layers"))
    ours, reference = _both(probe, sides)
    if ours is None or reference is None:
        return Difference("layers", _one_line(sides[0].error or sides[1].error))
    return first_layer(reference.tensors, ours.tensors)


def _one_line(error: Exception | None) -> str:
    """The first line of an oracle's text; some exceptions print whole signatures."""
    lines = str(error).strip().splitlines()
    return lines[0].rstrip(":") if lines else ""
