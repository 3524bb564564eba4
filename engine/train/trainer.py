"""One step of training: gradients of an objective, clipped, through mlx's AdamW."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import mlx.core as mx
from mlx.optimizers import AdamW, clip_grad_norm

from engine.train.loss import Objective
from engine.train.parameters import Parameters

Tree = dict[str, Any]
Step = Callable[[Parameters, Tree, mx.array, mx.array, mx.array], tuple[Parameters, Tree, mx.array]]


@dataclass(frozen=True, kw_only=True)
class Optimizer:
    """AdamW's numbers. decay: of weights, on matrices only; clip: the largest norm of all gradients together."""

    betas: tuple[float, float] = (0.9, 0.98)
    eps: float = 1e-8
    decay: float = 0.1
    clip: float = 1.0


class Trainer:
    """Parameters, the optimizer's moments, and the step that moves both. `count`: steps so far.

    compiled: the whole step is one mx.compile trace a shape of batch.
    """

    def __init__(self, objective: Objective, parameters: Parameters, how: Optimizer, *, compiled: bool = True) -> None:
        self.parameters, self.count = dict(parameters), 0
        self._kinds = {"matrices": how.decay, "vectors": 0.0}
        self._how = how
        self.moments: Tree = {kind: self._first_moments(kind) for kind in self._kinds}
        made = self._make_step(objective)
        self._step: Step = mx.compile(made) if compiled else made

    def step(self, rate: mx.array, rows: mx.array, weights: mx.array) -> mx.array:
        """Move once by rows [B, T + 1] and weights [B, T]; returns the mean loss in nats before the move, unevaluated.

        The new parameters are not evaluated either: the caller says when.
        """
        self.parameters, self.moments, loss = self._step(self.parameters, self.moments, rate, rows, weights)
        self.count += 1
        return loss

    def _of_kind(self, tree: Tree, kind: str) -> Tree:
        return {name: value for name, value in tree.items() if (self.parameters[name].ndim > 1) == (kind == "matrices")}

    def _optimizer(self, kind: str) -> AdamW:
        how = self._how
        return AdamW(
            learning_rate=0.0,
            betas=list(how.betas),
            eps=how.eps,
            weight_decay=self._kinds[kind],
            bias_correction=True,
        )

    def _first_moments(self, kind: str) -> Tree:
        optimizer = self._optimizer(kind)
        optimizer.init(self._of_kind(self.parameters, kind))
        return dict(optimizer.state)

    def _make_step(self, objective: Objective) -> Step:
        optimizers = {kind: self._optimizer(kind) for kind in self._kinds}

        def mean(parameters: Parameters, rows: mx.array, weights: mx.array) -> mx.array:
            return objective(parameters, rows, weights) / mx.maximum(weights.sum(), 1.0)

        def step(
            parameters: Parameters, moments: Tree, rate: mx.array, rows: mx.array, weights: mx.array
        ) -> tuple[Parameters, Tree, mx.array]:
            loss, gradients = mx.value_and_grad(mean)(parameters, rows, weights)
            gradients, _ = clip_grad_norm(gradients, self._how.clip)
            moved: Parameters = {}
            after: Tree = {}
            for kind, optimizer in optimizers.items():
                optimizer.state = {**moments[kind], "learning_rate": rate}
                moved |= optimizer.apply_gradients(self._of_kind(gradients, kind), self._of_kind(parameters, kind))
                after[kind] = dict(optimizer.state)
            return {name: moved[name] for name in parameters}, after, loss

        return step
