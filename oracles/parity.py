"""Parity: the engine and an oracle run the same probe now, each in its own process, and every value must be equal."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from engine import errors
from oracles.client import Worker
from oracles.compare import Difference, array_sha256, compare_arrays, compare_tokens, first_layer
from oracles.contract import (
    BatchProbe,
    GenerateProbe,
    OracleCrashed,
    OracleRefused,
    Probe,
    SchemeNotLive,
    StackConfig,
    Trace,
)
from oracles.live import is_state, require_scheme

EQUAL, DIFFERS, FAILED = "equal", "differs", "failed"
NOT_RUN, NOT_BUILT, NOT_CLAIMED = "not run", "not built", "not claimed: OpenBLAS"
# A scheme that no other stack has: shown to be on, and judged by its KL.
LAB = "Lab"
BAD = (DIFFERS, FAILED)
WHY_CHARS = 300
CACHE_FIELDS = ("scheme", "layout", "offset", "dtype", "bits", "group_size")


@dataclass(frozen=True, kw_only=True)
class Cell:
    """One comparison.

    name: the model as a reader knows it; dtype: of the activations, with the weights' packing where there is one.
    probe: what both sides run; steps: decode steps in it. reference: "mlx-lm", "optiq", "engine" (the engine against
    itself at another chunk, an equality between shapes) or `LAB` (the engine alone). reference_model: another folder on
    the reference's side. compile: whether MLX fuses, on both sides. levers: of the engine's configuration.
    """

    name: str
    dtype: str
    model: str
    probe: Probe | GenerateProbe | BatchProbe
    steps: int
    kv: str = "native"
    chunk: int = 2048
    reference: str = "mlx-lm"
    reference_chunk: int | None = None
    reference_model: str | None = None
    compile: bool = True
    levers: tuple[tuple[str, str], ...] = ()

    @property
    def kind(self) -> str:
        """How the tokens come: "forced", "greedy", "sampled", or greedy in a "batch"."""
        if isinstance(self.probe, BatchProbe):
            return "batch"
        if isinstance(self.probe, Probe):
            return "forced"
        return "sampled" if self.probe.sampling.get("temperature", 0) else "greedy"

    def config(self, blas: str) -> StackConfig:
        """The engine's."""
        return StackConfig(
            stack="engine",
            model=self.model,
            kv=self.kv,
            chunk=self.chunk,
            blas=blas,
            compile=self.compile,
            levers=self.levers,
        )

    def configs(self, blas: str) -> tuple[StackConfig, StackConfig]:
        """(engine, reference)."""
        ours = self.config(blas)
        theirs = replace(
            ours,
            stack=self.reference,
            levers=self.levers if self.reference == "engine" else (),
            model=self.reference_model or self.model,
            chunk=self.reference_chunk or self.chunk,
        )
        return ours, theirs


@dataclass(frozen=True)
class CellResult:
    """`status` is one of the module's words; `why` says it in a line; `bisect`: the first layer that differs.

    reference_sha256: of the reference's first array, to tell whether two probes of a reference agree.
    """

    cell: Cell
    status: str
    why: str = ""
    difference: Difference | None = None
    positions: int = 0
    distinct_tokens: int = 0
    bisect: Difference | None = None
    versions: dict[str, str] | None = None
    reference_sha256: str = ""

    def as_dict(self) -> dict[str, Any]:
        """JSON form of a row of the table."""
        return {
            "model": self.cell.name,
            "dtype": self.cell.dtype,
            "kv": self.cell.kv,
            "chunk": self.cell.chunk,
            "kind": self.cell.kind,
            "levers": dict(self.cell.levers),
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
    """One side of the comparison: its workers by process, the last one's refusal kept instead of raised."""

    def __init__(self, workers: contextlib.ExitStack) -> None:
        self.config: StackConfig | None = None
        self.error: errors.FrontierError | None = None
        self._refused: errors.FrontierError | None = None
        self._stack = workers
        self._workers: dict[tuple[str, str, bool], Worker] = {}
        self._loading = False

    def ask_load(self, config: StackConfig) -> None:
        """Begin to load another configuration, in the worker of its process; a crashed one is started again."""
        worker = self._workers.get(config.process)
        if worker is not None and not worker.closed and config == self.config:
            return
        self.config, self._refused = config, None
        if worker is not None and config.stack == "optiq":  # its KV plan is final for the process
            worker.close()
        if worker is None or worker.closed:
            self._workers[config.process] = Worker(replace(config, model=""), wait=False)
            self._stack.callback(self.worker.close)
        self._loading = self._guard(lambda: self.worker.ask_load(config)) is not None

    def await_load(self) -> None:
        """Collect the outcome of `ask_load`; a refusal counts for every probe until another configuration comes."""
        if self._loading:
            self._guard(self.worker.answer)
            self._refused = self.error
        self._loading = False

    @property
    def worker(self) -> Worker:
        """The worker that the loaded configuration lives in."""
        assert self.config is not None
        return self._workers[self.config.process]

    def ask(self, probe: Probe | GenerateProbe | BatchProbe) -> bool:
        """Send a probe; False when nothing is loaded or the worker is gone."""
        self.error = self._refused
        return self._refused is None and self._guard(lambda: self.worker.ask(probe)) is not None

    def answer(self) -> Trace | None:
        """The answer to `ask`, or None with the reason in `error`."""
        answered = self._guard(self.worker.answer)
        return answered if isinstance(answered, Trace) else None

    def _guard(self, action: Callable[[], Trace | None]) -> Trace | bool | None:
        self.error = None
        try:
            return action() or True
        except (OracleRefused, OracleCrashed) as error:
            self.error = error
            if isinstance(error, OracleCrashed) or self.worker.closed:
                self._refused = error
                self.worker.close()
        return None


class Pair:
    """The engine and a reference, each in its worker; they take one cell after another."""

    def __init__(self, blas: str) -> None:
        self.blas = blas
        self._workers = contextlib.ExitStack()
        self._sides: dict[str, Side] = {}

    def __enter__(self) -> Pair:
        return self

    def __exit__(self, *exception: object) -> None:
        self._workers.close()

    def run(self, cell: Cell, *, bisect: bool = False) -> CellResult:
        """One cell's verdict. Neighbours of one configuration share what is loaded."""
        if cell.reference == "engine" and self.blas != "bundled":
            return CellResult(cell, NOT_CLAIMED, "equality between shapes holds with the bundled BLAS only")
        if cell.reference == LAB:
            return self._alone(cell)
        ours, theirs = cell.configs(self.blas)
        sides = self._side("ours"), self._side(theirs.stack)
        sides[0].ask_load(ours)
        sides[1].ask_load(theirs)
        for side in sides:
            side.await_load()
        return _run_cell(cell, sides, bisect)

    def _alone(self, cell: Cell) -> CellResult:
        """The engine runs, and its live caches are what was asked, or the cell failed."""
        side = self._side("ours")
        side.ask_load(cell.config(self.blas))
        side.await_load()
        trace = side.answer() if side.ask(cell.probe) else None
        if trace is None:
            return CellResult(cell, FAILED, _one_line(side.error))
        try:
            require_scheme(trace, cell.kv)
        except SchemeNotLive as error:
            return CellResult(cell, FAILED, str(error))
        judge = "nothing is said of its bits" if isinstance(cell.probe, BatchProbe) else "its KL judges it"
        return CellResult(cell, LAB, f"no other stack has it: it is live in the engine, and {judge}")

    def _side(self, name: str) -> Side:
        return self._sides.setdefault(name, Side(self._workers))


def run_cells(
    cells: Sequence[Cell], *, blas: str, bisect: bool = False, progress: Callable[[str, int, int], None] | None = None
) -> Generator[CellResult, None, None]:
    """Run the cells in order and yield each result.

    progress(label, done, total) is called before each cell and once at the end.
    """
    tell = progress or (lambda label, done, total: None)
    with Pair(blas) as pair:
        for done, cell in enumerate(cells):
            tell(f"{cell.name} {cell.dtype} {cell.kv} {cell.kind}", done, len(cells))
            yield pair.run(cell, bisect=bisect)
        tell("done", len(cells), len(cells))


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
    if difference is not None and (unsteady := _unsteady(cell, sides, theirs)):
        return CellResult(cell, NOT_RUN, unsteady, difference=difference, versions=dict(theirs.doc["versions"]))
    name = next(iter(theirs.tensors))
    result = CellResult(
        cell,
        EQUAL if difference is None else DIFFERS,
        _apart(cell, theirs),
        difference=difference,
        positions=int(theirs.tensors[name].shape[0]),
        distinct_tokens=len(set(theirs.doc.get("tokens", ()))),
        versions=dict(theirs.doc["versions"]),
        reference_sha256=array_sha256(theirs.tensors[name]),
    )
    if difference is not None and bisect and not isinstance(cell.probe, BatchProbe):
        return replace(result, bisect=_bisect(cell, sides, theirs))
    return result


def _unsteady(cell: Cell, sides: tuple[Side, Side], theirs: Trace) -> str:
    """Whether the reference gives other values when it is asked once more, in words; it can then judge nobody."""
    again = sides[1].answer() if sides[1].ask(cell.probe) else None
    if again is None:
        return ""
    found = compare_traces(theirs, again)
    if found is None:
        return ""
    gap = "" if found.max_abs_diff is None else f", max |diff| {found.max_abs_diff:.3g}"
    return f"{theirs.doc['stack']} gives other values when it is asked again ({found.tensor}{gap}): it cannot judge"


def _apart(cell: Cell, reference: Trace) -> str:
    """Where a reference's batch is not its own plain decoding, in words."""
    gaps = reference.doc.get("apart") or {}
    if not gaps:
        return ""
    if isinstance(cell.probe, BatchProbe) and cell.probe.judge == "batch":
        return (
            f"{reference.doc['stack']}'s batch is off its own plain decoding here; the rows are compared with the batch"
        )
    return f"{reference.doc['stack']}'s batch is off its own plain decoding here, which the rows are compared with"


def _both(probe: Probe | GenerateProbe | BatchProbe, sides: tuple[Side, Side]) -> tuple[Trace | None, Trace | None]:
    """Run one probe on both sides at the same time."""
    asked = [side.ask(probe) for side in sides]
    ours, theirs = (side.answer() if sent else None for side, sent in zip(sides, asked, strict=True))
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
    """Tokens first, then the arrays, then which scheme each position attended, then the caches at the end."""
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
    if "tokens" not in reference.doc and "caches" in reference.doc:  # a free run ends a step apart
        return _compare_caches(reference.doc["caches"], candidate.doc["caches"])
    return None


def _compare_caches(
    reference: Sequence[Mapping[str, Any]], candidate: Sequence[Mapping[str, Any]]
) -> Difference | None:
    """What the caches are at the end, without their size in bytes, which is each side's own."""
    if len(reference) != len(candidate):
        return Difference("caches", f"{len(candidate)} caches instead of {len(reference)}")
    for i, (theirs, ours) in enumerate(zip(reference, candidate, strict=True)):
        for name in CACHE_FIELDS:
            if name == "offset" and is_state(theirs):  # mlx-lm's states do not count tokens
                continue
            if theirs[name] != ours[name]:
                return Difference(f"cache {i}", f"{name} {ours[name]} instead of {theirs[name]}")
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
    """An oracle's text in one line; some exceptions print whole signatures."""
    return " ".join(str(error).split())[:WHY_CHARS]
