"""Sampling by itself: refusals, key chains, top log-probabilities."""

from __future__ import annotations

import threading

import mlx.core as mx
import numpy as np
import pytest

from engine import SamplingParams, errors
from engine.sample.keys import KeyChain
from engine.sample.logprobs import logprobs_of, top
from engine.sample.processors import build_processors
from engine.sample.samplers import build_sampler

VOCAB = 50


@pytest.mark.parametrize(
    ("fields", "special", "named"),
    [
        ({"temperature": 1.0, "top_k": VOCAB}, (), "top_k=50"),
        ({"top_k": VOCAB}, (), "top_k=50"),
        ({"temperature": 1.0, "min_p": 0.1, "min_tokens_to_keep": VOCAB + 1}, (), "min_tokens_to_keep=51"),
        ({"temperature": 0.0, "xtc_probability": 0.5}, (), "xtc_probability=0.5"),
        ({"temperature": 1.0, "xtc_probability": 0.5}, (VOCAB,), "xtc_special_tokens=50"),
    ],
)
def test_sampler_refuses(fields: dict[str, float], special: tuple[int, ...], named: str) -> None:
    with pytest.raises(errors.InvalidValue, match=named) as caught:
        build_sampler(SamplingParams(**fields), VOCAB, xtc_special_tokens=special)
    assert "allowed" in str(caught.value)


def test_bias_outside_the_vocabulary_is_refused() -> None:
    with pytest.raises(errors.InvalidValue, match=r"logit_bias token id=50 .*0\.\.49"):
        build_processors(SamplingParams(logit_bias={3: 1.0, VOCAB: 1.0}), VOCAB)


def test_largest_values_that_fit_are_accepted() -> None:
    params = SamplingParams(
        temperature=1.0, top_k=VOCAB - 1, min_p=0.1, min_tokens_to_keep=VOCAB, logit_bias={VOCAB - 1: 1.0}
    )
    assert build_sampler(params, VOCAB, fused=False).names == ("min_p", "top_k", "categorical")
    assert build_processors(params, VOCAB).names == ("logit_bias",)


def test_order_of_filters_and_processors() -> None:
    params = SamplingParams(
        temperature=1.0, top_p=0.9, min_p=0.1, xtc_probability=0.5, top_k=3,
        logit_bias={1: 1.0}, repetition_penalty=1.1, presence_penalty=0.1, frequency_penalty=0.1,
    )  # fmt: skip
    assert build_sampler(params, VOCAB, fused=False).names == ("top_p", "min_p", "xtc", "top_k", "categorical")
    names = ("logit_bias", "repetition_penalty", "presence_penalty", "frequency_penalty")
    assert build_processors(params, VOCAB).names == names
    assert not build_processors(SamplingParams(), VOCAB)


def test_greedy_spends_no_key_and_xtc_spends_two() -> None:
    logprobs = logprobs_of(mx.arange(VOCAB, dtype=mx.float32)[None])
    for fields, spent in (
        ({}, 0),
        ({"temperature": 1.0}, 1),
        ({"temperature": 1.0, "top_p": 0.5, "min_p": 0.1, "top_k": 3}, 1),
        ({"temperature": 1.0, "xtc_probability": 0.1}, 2),
    ):
        keys = KeyChain(7)
        sampler = build_sampler(SamplingParams(**fields), VOCAB, fused=False)
        assert sampler(logprobs, keys).shape == (1,)
        assert (keys.drawn, sampler.greedy) == (spent, spent == 0)


def test_greedy_takes_the_argmax_of_logprobs() -> None:
    logits = mx.zeros((1, VOCAB), mx.bfloat16)
    logits[0, 10] = 0.001  # the best logit, but rounding the log-probabilities makes it tie with the first
    token = build_sampler(SamplingParams(), VOCAB)(logprobs_of(logits), KeyChain(0)).item()
    assert (mx.argmax(logits).item(), token) == (10, 0)


@pytest.mark.parametrize("temperature", [1e-3, 2e-4, 1e-4, 1e-6])
@pytest.mark.parametrize("fused", [False, True])
def test_a_very_cold_draw_is_the_best_token_in_float16(temperature: float, fused: bool) -> None:
    """mlx-lm draws at random below about 1e-4: 1 / temperature overflows the logprobs (a fault of the reference)."""
    logprobs = logprobs_of((mx.arange(VOCAB) % 7 + 2 * (mx.arange(VOCAB) == 33)).astype(mx.float16)[None])
    keys = KeyChain(3)
    sampler = build_sampler(SamplingParams(temperature=temperature), VOCAB, fused=fused)
    assert {sampler(logprobs, keys).item() for _ in range(8)} == {mx.argmax(logprobs).item()}


@pytest.mark.parametrize("seed", [-1, 2**64, 1.0, True, None])
def test_key_chain_refuses(seed: object) -> None:
    with pytest.raises(errors.InvalidValue, match="seed"):
        KeyChain(seed)  # type: ignore[arg-type]


def test_key_chain_is_the_same_in_any_thread_and_is_not_disturbed() -> None:
    def chain(seed: int) -> list[list[int]]:
        keys = KeyChain(seed)
        out = []
        for _ in range(3):
            out.append(keys.next().tolist())
            mx.random.uniform()
        return out

    there: list[list[list[int]]] = []
    worker = threading.Thread(target=lambda: there.append(chain(2**64 - 1)))
    worker.start()
    worker.join()
    assert there == [chain(2**64 - 1)]
    assert chain(1) != chain(2)
    assert len({tuple(key) for key in chain(1)}) == 3


def test_top_is_best_first_with_ties_in_id_order() -> None:
    row = np.array([-3.0, -1.0, -2.0, -1.0, -2.0, -2.0], np.float32)
    assert top(row, 4) == ((1, -1.0), (3, -1.0), (2, -2.0), (4, -2.0))
    assert top(row, 0) == ()
    assert [token for token, _ in top(row, 6)] == [1, 3, 2, 4, 5, 0]


def test_top_refuses() -> None:
    with pytest.raises(errors.InvalidValue, match=r"top_logprobs=7 .*0\.\.6"):
        top(np.zeros(6), 7)
    with pytest.raises(errors.InvalidValue, match="shape"):
        top(np.zeros((1, 6)), 1)
