"""The loop of training: batches, rates, a curve, checkpoints, and a time after which a run ends."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import mlx.core as mx

from engine.errors import CorruptFile, InvalidValue
from engine.train.checkpoint import load_checkpoint, save_checkpoint
from engine.train.loss import Objective
from engine.train.parameters import Parameters
from engine.train.schedule import PLATEAU, WHOLE, Schedule, steps_from
from engine.train.trainer import Optimizer, Trainer

# step -> (rows [B, T + 1] of token ids, weights [B, T] of the targets), as arrays that mx.array takes
Batch = Callable[[int], tuple[Any, Any]]
Report = Callable[[int, int | None, float], None]  # (step, steps or None, loss in nats)


@dataclass(frozen=True, kw_only=True)
class Training:
    """How a model is trained. steps: all of them, or None with `seconds`, which fixes them while it runs.

    every: steps between two points of the curve, and the most that a killed run repeats is `keep_every`.
    """

    rate: float
    seed: int
    steps: int | None = None
    seconds: float | None = None
    warm_up: int = 100
    every: int = 25
    keep_every: int = 500
    optimizer: Optimizer = field(default_factory=Optimizer)
    compiled: bool = True

    def __post_init__(self) -> None:
        if (self.steps is None) == (self.seconds is None):
            raise InvalidValue("steps", self.steps, "a number, or None with seconds")
        if self.every < 1 or self.keep_every < 1:
            raise InvalidValue("every", min(self.every, self.keep_every), "at least 1")


@dataclass(frozen=True)
class Trained:
    """parameters; steps: how many were made; curve: (step, mean loss in nats of the batches since the point before)."""

    parameters: Parameters
    steps: int
    curve: tuple[tuple[int, float], ...]


def fit(
    objective: Objective,
    parameters: Parameters,
    batch: Batch,
    how: Training,
    *,
    checkpoint: Path | None = None,
    report: Report | None = None,
) -> Trained:
    """Train from `parameters`, or from `checkpoint` where a killed run left one; removed when the run is through.

    Raises `CorruptFile` for a checkpoint of another model, seed or rate. A loss that is no number is `InvalidValue`.
    """
    trainer = Trainer(objective, parameters, how.optimizer, compiled=how.compiled)
    run = _Run(trainer, how, report)
    if checkpoint is not None and checkpoint.is_file():
        run.resume(checkpoint)
    while not run.done:
        run.advance(batch(trainer.count))
        if checkpoint is not None and trainer.count % how.keep_every == 0 and not run.done:
            save_checkpoint(checkpoint, trainer, run.notes())
    mx.eval(trainer.parameters)
    if checkpoint is not None:
        checkpoint.unlink(missing_ok=True)
    return Trained(trainer.parameters, trainer.count, tuple(run.curve))


class _Run:
    """What the loop keeps beside the trainer's state."""

    def __init__(self, trainer: Trainer, how: Training, report: Report | None) -> None:
        self._trainer, self._how, self._report = trainer, how, report
        self._schedule = Schedule(rate=how.rate, warm_up=how.warm_up, steps=how.steps)
        self._rates = self._schedule.rates()
        self._began: float | None = None  # when the first step was through: tracing it counts not
        self._waiting: list[mx.array] = []
        self.curve: list[tuple[int, float]] = []

    @property
    def done(self) -> bool:
        steps = self._schedule.steps
        return steps is not None and self._trainer.count >= steps

    def advance(self, batch: tuple[Any, Any]) -> None:
        trainer = self._trainer
        rows, weights = map(mx.array, batch)
        loss = trainer.step(self._rates(mx.array(trainer.count)), rows, weights)
        mx.async_eval(loss, trainer.parameters, trainer.moments)
        if self._waiting:
            mx.eval(self._waiting[-1])  # the host stays one step ahead of the device, not more
            self._began = self._began or time.monotonic()
        self._waiting.append(loss)
        if trainer.count % self._how.every == 0 or self.done:
            self._point()
        self._fix_steps()

    def _point(self) -> None:
        mean = mx.mean(mx.stack(self._waiting)).item()
        assert isinstance(mean, float)
        self._waiting.clear()
        if not abs(mean) < float("inf"):
            raise InvalidValue("loss", mean, f"a finite number (step {self._trainer.count}; try a smaller rate)")
        self.curve.append((self._trainer.count, mean))
        if self._report is not None:
            self._report(self._trainer.count, self._schedule.steps, mean)

    def _fix_steps(self) -> None:
        """Once the plateau's share of the time is over, the steps so far say how many there will be."""
        if self._schedule.steps is not None or self._how.seconds is None or self._began is None:
            return
        steps = steps_from(self._trainer.count)
        if steps is not None and time.monotonic() - self._began > self._how.seconds * PLATEAU / WHOLE:
            self._schedule = replace(self._schedule, steps=steps)
            self._rates = self._schedule.rates()

    def notes(self) -> dict[str, str]:
        """What a checkpoint says beside its arrays."""
        return {**self._identity(), "curve": json.dumps(self.curve), "steps": json.dumps(self._schedule.steps)}

    def _identity(self) -> dict[str, str]:
        return {"seed": str(self._how.seed), "rate": repr(self._how.rate)}

    def resume(self, path: Path) -> None:
        notes = load_checkpoint(path, self._trainer)
        wanted = self._identity()
        if {key: notes.get(key) for key in wanted} != wanted:
            raise CorruptFile(path, f"of another run: {notes.get('seed')}, {notes.get('rate')}; this one is {wanted}")
        self.curve = [(int(step), float(loss)) for step, loss in json.loads(notes["curve"])]
        steps = json.loads(notes["steps"])
        if self._how.steps is None and steps is not None:
            self._schedule = replace(self._schedule, steps=steps)
            self._rates = self._schedule.rates()
