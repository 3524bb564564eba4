"""Prompts longer than a block of a state-space scan: states pass between blocks and calls with mlx-lm's bits."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import mlx.core as mx
import pytest

from engine.graph.ssm import BLOCK
from oracles.client import Worker
from oracles.contract import Probe, StackConfig
from oracles.matrix import random_ids
from oracles.recipe import Form, find_recipe

PROMPT = BLOCK + 44


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    with Worker(StackConfig(stack="mlx-lm", model="", compile=False)) as builder:
        yield builder.make(find_recipe("mamba2"), Form(), tmp_path_factory.mktemp("blocks"))


def test_a_state_passes_between_blocks_and_calls(model: Path) -> None:
    logits: dict[str, list[mx.array]] = {}
    ids = random_ids(100, PROMPT + 3)
    for stack in ("engine", "mlx-lm"):
        with Worker(StackConfig(stack=stack, model=str(model), dtype="float32", compile=False)) as worker:
            for first in (PROMPT, BLOCK, 100):
                sizes = (first, *([PROMPT - first] if first < PROMPT else []), 1, 2)
                tensors = worker.probe(Probe(token_ids=ids, sizes=sizes)).tensors
                logits.setdefault(stack, []).append(tensors["logits"])
    whole, at_block, inside = logits["engine"]
    for ours, theirs in zip(*logits.values(), strict=True):
        assert mx.array_equal(ours, theirs)
    # A call may begin at a block's end without a trace; elsewhere it leaves one.
    assert mx.array_equal(whole, at_block)
    assert not mx.array_equal(whole, inside)
