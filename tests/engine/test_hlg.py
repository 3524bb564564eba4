"""The sampler hlg against a plain reference in NumPy, its refusals, and its place as a row of a batch."""

from __future__ import annotations

from pathlib import Path

import mlx.core as mx
import numpy as np
import pytest

from engine import LEVERS, Request, SamplingParams, errors, load, sampling_logprobs
from engine.sample.hlg import HLG, hlg_scores, parse_hlg
from engine.sample.keys import KeyChain
from engine.sample.logprobs import logprobs_of
from engine.sample.samplers import build_sampler

MODEL = Path(__file__).resolve().parents[1] / "zoo" / "draft-0.5m"
CURVES = ("hlg", "hlg:width=0,offset=0", "hlg:width=0.5,shoulder=0.3,toe=2,offset=4", "hlg:toe=0.5", "hlg:width=50")


def reference(logprobs: np.ndarray, temperature: float, curve: HLG) -> np.ndarray:
    """The formula, one number at a time, in float64."""
    m, w, shoulder, toe = 1 / temperature, curve.width, curve.shoulder, curve.toe
    pivot = logprobs.max() - curve.offset
    out = []
    for value in logprobs:
        z = float(value) - pivot
        if z > w:
            out.append(m * w + m * shoulder * np.log(1 + (z - w) / shoulder))
        elif z < -w:
            out.append(-m * w - m * toe * np.log(1 + (-z - w) / toe))
        else:
            out.append(m * z)
    return np.array(out)


@pytest.mark.parametrize("text", CURVES)
@pytest.mark.parametrize("temperature", [0.5, 1.0, 1.7])
def test_scores_are_those_of_the_formula(text: str, temperature: float) -> None:
    """A swapped shoulder and toe, a pivot at the best token or a slope of T instead of 1/T each fail here."""
    rng = np.random.Generator(np.random.PCG64(4))
    logprobs = np.array(logprobs_of(mx.array(rng.normal(0, 4, (3, 97)).astype(np.float32))))
    curve = parse_hlg(text)
    got = np.array(hlg_scores(mx.array(logprobs), temperature, curve))
    for row, want in zip(got, logprobs, strict=True):
        # The reference works in float64, the sampler in float32, whose rounding is 1.2e-7 of a value a step.
        np.testing.assert_allclose(row, reference(want, temperature, curve), rtol=2e-6, atol=2e-6)


def test_what_is_drawn_is_what_the_formula_says() -> None:
    """Frequencies of 3,000 draws against the softmax of the reference: a draw from plain log-probabilities is off by
    more than three times the bound."""
    text, temperature = "hlg:width=0.5,shoulder=0.3,toe=2,offset=2", 0.8
    logprobs = logprobs_of(mx.array([[3.0, 2.0, 1.0, 0.0, -2.0, -6.0]]))
    scores = reference(np.array(logprobs[0]), temperature, parse_hlg(text))
    want = np.exp(scores) / np.exp(scores).sum()
    params = SamplingParams(temperature=temperature, sampler=text)
    sampler, keys, n = build_sampler(params, 6, fused=False), KeyChain(5), 3000
    drawn = mx.concatenate([sampler(logprobs, keys) for _ in range(n)])
    found = np.bincount(np.array(drawn), minlength=6) / n
    assert np.abs(found - want).max() < 4 * 0.5 / np.sqrt(n)
    plain = np.exp(np.array(logprobs[0]) / temperature)
    assert np.abs(plain / plain.sum() - want).max() > 12 * 0.5 / np.sqrt(n)
    # float32 against float64, and an exponential multiplies the rounding by the score.
    np.testing.assert_allclose(np.exp(np.array(sampling_logprobs(logprobs, params)[0])), want, rtol=1e-5)


def test_filtered_tokens_stay_out_and_a_wide_straight_part_is_plain_temperature() -> None:
    logits = mx.array(np.random.Generator(np.random.PCG64(1)).normal(0, 3, (2, 40)).astype(np.float32))
    cut = SamplingParams(temperature=1.0, top_k=5, sampler="hlg:toe=20")
    assert (np.isfinite(np.array(sampling_logprobs(logits, cut))).sum(axis=1) == 5).all()
    plain, wide = (SamplingParams(temperature=0.7, sampler=name) for name in ("categorical", "hlg:width=1000"))
    got, want = (np.array(sampling_logprobs(logits, params)) for params in (wide, plain))
    # One shifts by the best score and the offset before the softmax, the other does not: float32 rounds them otherwise.
    np.testing.assert_allclose(got, want, atol=1e-5)


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"temperature": 1.0, "sampler": "hgl"}, "sampler='hgl' .*categorical, hlg"),
        ({"temperature": 1.0, "sampler": "categorical:1"}, "categorical, hlg"),
        ({"temperature": 0.0, "sampler": "hlg"}, "sampler='hlg' .*greedy draws nothing"),
        ({"temperature": 1.0, "sampler": "hlg:"}, "width, shoulder, toe, offset"),
        ({"temperature": 1.0, "sampler": "hlg:width=-1"}, r"sampler hlg width=-1.0 .*>= 0, in nats"),
        ({"temperature": 1.0, "sampler": "hlg:toe=0"}, "sampler hlg toe=0.0"),
        ({"temperature": 1.0, "sampler": "hlg:toe=nan"}, "toe=NUMBER, once"),
        ({"temperature": 1.0, "sampler": "hlg:toe=1,toe=2"}, "toe=NUMBER, once"),
        ({"temperature": 1.0, "sampler": "hlg:width=1_0"}, "sampler hlg='width=1_0' .*width=NUMBER, once"),
        ({"temperature": 1.0, "sampler": "hlg:width= 1"}, "width=NUMBER, once"),
    ],
)
def test_refusals(fields: dict[str, object], named: str) -> None:
    with pytest.raises(errors.InvalidValue, match=named):
        build_sampler(SamplingParams(**fields), 50)  # type: ignore[arg-type]


def test_other_refusals() -> None:
    with pytest.raises(errors.UnknownField, match="unknown 'knee'; known: offset, shoulder, toe, width"):
        build_sampler(SamplingParams(temperature=1.0, sampler="hlg:knee=1"), 50)
    with pytest.raises(errors.InvalidValue, match="sampler=3"):
        SamplingParams(sampler=3)  # type: ignore[arg-type]
    with pytest.raises(errors.InvalidValue, match="XTC tosses a coin"):
        sampling_logprobs(mx.zeros((1, 4)), SamplingParams(temperature=1.0, xtc_probability=0.5))
    with pytest.raises(errors.InvalidValue, match="nothing is drawn"):
        sampling_logprobs(mx.zeros((1, 4)), SamplingParams())
    assert LEVERS["sampler"].where == "request"


def test_each_row_of_a_batch_draws_by_its_own_sampler() -> None:
    """One sampler for all rows, or keys shared between rows, changes some row against its solo run."""
    asked = [("categorical", 1.0), ("hlg:toe=3", 1.2), ("hlg", 0.9), ("categorical", 0.0)]
    requests = [
        Request(
            prompt=(5, 9, 40, 7),
            sampling=SamplingParams(max_tokens=12, temperature=t, sampler=name, seed=11 + i, ignore_eos=True),
        )
        for i, (name, t) in enumerate(asked)
    ]
    with load(str(MODEL), dtype="float32", batch=4) as eng:
        together = [handle.result() for handle in [eng.submit(request) for request in requests]]
        alone = [eng.submit(request).result() for request in requests]
        with pytest.raises(errors.InvalidValue, match="categorical, hlg"):
            eng.submit(Request(prompt=(5,), sampling=SamplingParams(temperature=1.0, sampler="none")))
    assert [done.tokens for done in together] == [done.tokens for done in alone]
    assert [done.plan.sampler for done in together] == ["categorical", "hlg", "hlg", "greedy"]
    assert together[1].tokens != together[0].tokens
