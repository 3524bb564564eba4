"""The bare graph over caches of its own: filled once, continued from copies."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import mlx.core as mx
import numpy as np
import pytest

from engine import load
from oracles.tiny import tiny_model

PROMPT, STEPS = tuple(range(2, 22)), (5, 6, 7)


@pytest.mark.parametrize("kv", ["native", "kv8", "kv8/4", "turbo:k8v3", "kv4:on-write"])
def test_twins_of_filled_caches_go_on_alike_and_leave_them_as_they_are(kv: str) -> None:
    def work(fresh: Callable[[], Any]) -> tuple[list[np.ndarray], list[np.ndarray], list[list[np.ndarray]]]:
        run = fresh()
        run.fill(PROMPT, len(PROMPT))
        before = [np.array(array) for array in run.arrays()]
        logits = []
        for _ in range(2):
            twin = run.twin()
            twin.convert()
            logits.append([np.array(twin(mx.array([[token]]))[0]) for token in STEPS])
        assert run.describe()[0].offset == len(PROMPT)
        assert twin.describe()[0].offset == len(PROMPT) + len(STEPS)
        return before, [np.array(array) for array in run.arrays()], logits

    with load(tiny_model("llama"), kv=kv) as engine:
        before, after, (first, second) = engine.run_graph(work)
        whole = np.array(engine.trace(PROMPT + STEPS, sizes=(len(PROMPT), 1, 1, 1)).logits)
    for left, right in zip(before, after, strict=True):
        np.testing.assert_array_equal(left, right)
    for left, right in zip(first, second, strict=True):
        np.testing.assert_array_equal(left, right)
    np.testing.assert_array_equal(np.concatenate(first), whole[len(PROMPT) :])


def test_a_fill_in_chunks_holds_every_token() -> None:
    def work(fresh: Callable[[], Any]) -> tuple[int, ...]:
        run = fresh()
        run.fill(PROMPT, 7)
        return tuple(layer.offset for layer in run.describe())

    with load(tiny_model("llama"), kv="kv8") as engine:
        assert set(engine.run_graph(work)) == {len(PROMPT)}
