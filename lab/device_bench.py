"""Takes the turns of `lab.device_plan`: the engine against mlx-lm, on models of real shape drawn on the device.

A is mlx-lm ("base"), its plain loop for one row and its BatchGenerator for several, B the engine ("candidate"); in an
A/A both are mlx-lm. Coins choose every order, all samples are kept, and what a side refuses is told and left out.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack, closing
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from engine import errors
from lab.batch_bench import BatchSample
from lab.design import Launch, Role, make_plan, session_seed
from lab.device_models import prompts
from lab.device_plan import ROWS, Cell, Group, Turn
from lab.measure import Asked, Bench, Sample, TimedProbe
from lab.paired import QUADS_PER_LAUNCH
from oracles.contract import HostProbe, OracleCrashed, OracleRefused, RowsProbe, StackConfig, Trace

DISCARDED = 2
HOST_STEPS = 32
# Guesses for what was never measured here: a pair of processes, a first use of a shape, a step, prompt tokens x values.
START_S, COMPILE_S, STEP_S, PREFILL_PER_S = 20.0, 6.0, 0.012, 1.5e14
VALUES = {"tiny": 1e5, "135m": 1.35e8, "0.6b": 6e8, "8b": 8.2e9}
SIDES: tuple[Role, Role] = ("base", "candidate")


class Loaded(Asked, Protocol):
    """A worker that also takes a step's time apart."""

    def probe(self, probe: TimedProbe | HostProbe) -> Trace: ...


Start = Callable[[StackConfig], Loaded]


class Keeper(Protocol):
    """Where samples go as they are taken. part: "ab", "aa" or "host"."""

    def sample(self, cell: Cell, part: str, launch: int, values: Mapping[str, object]) -> None: ...

    def refused(self, cell: Cell, why: str) -> None: ...

    def event(self, name: str, detail: Mapping[str, object]) -> None: ...


@dataclass(frozen=True)
class Lent:
    """A worker that several benches use in turn: closing it ends nothing."""

    worker: Loaded

    @property
    def pid(self) -> int:
        return self.worker.pid

    def probe(self, probe: TimedProbe) -> Trace:
        return self.worker.probe(probe)

    def close(self) -> None:
        """Its owner ends it."""


def arms_of(group: Group, folder: Path, part: str, blas: str) -> dict[Role, StackConfig]:
    """(mlx-lm, the engine); in an A/A mlx-lm twice. The engine is driven by who reads, as mlx-lm's loops are."""
    base = StackConfig(stack="mlx-lm", model=str(folder), blas=blas)
    levers = (("batch", str(max(ROWS))), *group.levers)
    ours = StackConfig(stack="engine", model=str(folder), blas=blas, levers=levers, drive="manual")
    return {"base": base, "candidate": base if part == "aa" else ours}


def probe_of(cell: Cell) -> RowsProbe:
    """Its rows, all of one length, with seeded token ids."""
    return RowsProbe(rows=prompts(cell.group.model, cell.prompt, cell.rows), limit=cell.tokens)


def launch_of(cell: Cell, part: str, number: int) -> Launch:
    """The coins of one launch; a later call flips the same ones."""
    seed = session_seed("bench device", cell.name, part)
    return make_plan(seed, (number + 1) * QUADS_PER_LAUNCH, QUADS_PER_LAUNCH).launches[number]


def expected_s(turn: Turn, seen: Mapping[str, float]) -> float:
    """Seconds that a turn takes. seen: cell -> seconds of one of its samples, where there are any."""
    total = START_S
    for cell in turn.cells:
        guess = cell.tokens * STEP_S + cell.prompt * cell.rows * VALUES.get(cell.group.model, 1e9) / PREFILL_PER_S
        samples = 2 * (DISCARDED + 2 * QUADS_PER_LAUNCH)
        total += samples * seen.get(cell.name, guess) + (0.0 if cell.name in seen else COMPILE_S)
    return total


@dataclass(frozen=True, kw_only=True)
class Taking:
    """How turns are taken. folders: (model, packing) -> folder; clock: seconds."""

    folders: Mapping[tuple[str, str], Path]
    blas: str
    start: Start
    keep: Keeper
    tick: Callable[[str], None]
    clock: Callable[[], float] = time.monotonic

    def turns(self, turns: list[Turn], deadline: float | None, seen: dict[str, float]) -> list[Turn]:
        """Take them in order until the next would not end in time (`deadline` on `clock`); those not taken.

        A turn that does not fit is passed over for a shorter one behind it. Errors: `LeverNotApplied`.
        """
        left = []
        for turn in turns:
            if deadline is not None and self.clock() + expected_s(turn, seen) > deadline:
                left.append(turn)
                continue
            try:
                self.turn(turn, seen)
            except OracleCrashed as error:
                self.keep.event("crashed", {"turn": turn.name, "why": _line(error)})
        return left

    def turn(self, turn: Turn, seen: dict[str, float]) -> None:
        """One launch. A side that cannot be started leaves the turn out, one that refuses a cell that cell."""
        arms = arms_of(turn.group, self.folders[turn.group.model, turn.group.packing], turn.part, self.blas)
        order = launch_of(turn.cells[0], turn.part, turn.launch).start_order
        with ExitStack() as stack:
            workers: dict[Role, Loaded] = {}
            try:
                for role in order:
                    self.tick(f"{turn.name}: starting {arms[role].stack}")
                    workers[role] = stack.enter_context(closing(self.start(arms[role])))
                self._cells(turn, arms, workers, seen)
            except OracleRefused as refused:
                self.keep.event("not started", {"turn": turn.name, "why": _line(refused)})

    def _cells(
        self, turn: Turn, arms: Mapping[Role, StackConfig], workers: Mapping[Role, Loaded], seen: dict[str, float]
    ) -> None:
        for cell in turn.cells:
            try:
                seen[cell.name] = self._cell(turn, cell, arms, workers)
            except OracleRefused as refused:
                self.keep.refused(cell, _line(refused))
        if turn.host:
            self._host(turn, arms, workers)

    def _cell(self, turn: Turn, cell: Cell, arms: Mapping[Role, StackConfig], workers: Mapping[Role, Loaded]) -> float:
        """Two quads of one cell; the mean seconds of a sample."""
        launch, taken = launch_of(cell, turn.part, turn.launch), []
        lent = iter([Lent(workers[role]) for role in launch.start_order])

        def record(sample: Sample) -> None:
            taken.append(sample.sample_s)
            self.keep.sample(cell, turn.part, turn.launch, dict(sample.__dict__))

        Bench(
            arms=arms,
            probe=probe_of(cell),
            start=lambda _config: next(lent),
            record=record,
            tick=lambda what: self.tick(f"{cell.name}: {what}"),
            inspect=lambda _role, _trace: None,
            extend=BatchSample.of,
        ).launch(turn.part, launch, DISCARDED, 0, 0)
        return sum(taken) / len(taken)

    def _host(self, turn: Turn, arms: Mapping[Role, StackConfig], workers: Mapping[Role, Loaded]) -> None:
        cell = turn.cells[0]
        for role in SIDES:
            self.tick(f"{turn.group.name}: a step of {arms[role].stack}")
            doc = workers[role].probe(HostProbe(token_ids=probe_of(cell).rows[0], steps=HOST_STEPS)).doc
            times = {name: doc[name] for name in ("build_s", "encode_s", "wait_s", "step_s", "device_s")}
            self.keep.sample(cell, "host", turn.launch, {"role": role, "stack": arms[role].stack, **times})


def _line(error: errors.FrontierError) -> str:
    return " ".join(str(error).split())[:600]
