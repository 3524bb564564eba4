"""Likelihoods of continuations: those of the teacher-forced logits, whatever shares a forward."""

from __future__ import annotations

import math
import random
from pathlib import Path

import mlx.core as mx
import numpy as np
import pytest
from built_models import build

from engine import Likelihood, SamplingParams, errors, load
from oracles.client import Worker
from oracles.contract import Probe, StackConfig

CONTEXT = 17
LENGTHS = (3, 1, 9, 2, 14, 5)
FAMILIES = ("qwen3", "gemma3_text", "deepseek_v3", "qwen3_next", "qwen3_moe", "recurrent_gemma")


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(FAMILIES, tmp_path_factory.mktemp("likelihoods"))


def drawn(vocab: int, context: int = CONTEXT) -> tuple[list[int], list[list[int]]]:
    rng = random.Random(4)

    def ids(count: int) -> list[int]:
        return [rng.randrange(2, vocab) for _ in range(count)]

    return ids(context), [ids(length) for length in LENGTHS]


def of_logits(logits: mx.array, ids: list[int]) -> Likelihood:
    """From the logits [L, V] before each of `ids`."""
    rows = np.array(logits.astype(mx.float32)).astype(np.float64)
    logprobs = rows - np.logaddexp.reduce(rows, axis=1, keepdims=True)
    picked = tuple(float(logprobs[i, token]) for i, token in enumerate(ids))
    return Likelihood(picked, [int(i) for i in rows.argmax(axis=1)] == ids)


@pytest.mark.parametrize("family", FAMILIES)
def test_they_are_those_of_mlx_lms_logits_and_do_not_move_with_the_batch(models: Path, family: str) -> None:
    with load(models / family, prefill_chunk=7) as engine:
        context, asked = drawn(int(engine.model_config["vocab_size"]))
        asked.append(asked[0][:1])
        found = {batch: engine.likelihoods(context, asked, batch=batch) for batch in (1, 4, 8)}
    assert found[1] == found[4] == found[8]
    with Worker(StackConfig(stack="mlx-lm", model=str(models / family), chunk=7)) as oracle:
        for one, ids in zip(found[8], asked, strict=True):
            whole = (*context, *ids[:-1], 0)  # one more, so that no forward is of one token
            logits = oracle.probe(Probe(token_ids=whole, sizes=(7, 7, 2, len(ids) + 1))).tensors["logits"]
            want = of_logits(mx.array(logits)[CONTEXT - 1 : -1], ids)
            assert one.greedy == want.greedy
            assert np.abs(np.array(one.logprobs) - np.array(want.logprobs)).max() < 1e-5
            assert math.isclose(one.nats, math.fsum(one.logprobs))


def test_a_model_s_own_choice_is_greedy(llama_folder: Path) -> None:
    with load(llama_folder) as engine:
        tokens = engine.generate([5, 9, 2], SamplingParams(max_tokens=6, ignore_eos=True)).tokens
        one, other = engine.likelihoods([5, 9, 2], [tokens, (*tokens[:-1], tokens[-1] ^ 1)])
    assert one.greedy
    assert not other.greedy
    assert one.nats > other.nats


def test_packed_caches_are_converted_before_the_continuations(llama_folder: Path) -> None:
    found = {}
    for kv in ("native", "kv4:g32"):
        with load(llama_folder, kv=kv) as engine:
            context, asked = drawn(101)
            found[kv] = engine.likelihoods(context, asked)
            assert found[kv] == engine.likelihoods(context, asked, batch=1)
    assert found["native"] != found["kv4:g32"]


def test_what_makes_no_sense_is_refused(llama_folder: Path) -> None:
    with load(llama_folder) as engine:
        assert engine.likelihoods([5], []) == ()
        with pytest.raises(errors.EmptyPrompt):
            engine.likelihoods([], [[5]])
        with pytest.raises(errors.EmptyPrompt):
            engine.likelihoods([5], [[5], []])
        with pytest.raises(errors.InvalidValue, match="token id"):
            engine.likelihoods([5], [[5000]])
        with pytest.raises(errors.InvalidValue, match="batch"):
            engine.likelihoods([5], [[5]], batch=0)
