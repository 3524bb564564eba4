"""KL, perplexity and free running on trained weights and held-out text, where the size of a number says something."""

from __future__ import annotations

import math

import numpy as np
import pytest
from eval_fakes import EngineHere
from zoo_text import ZOO, held_out, zoo_arm

from evals.fidelity import run_fidelity
from evals.perplexity import run_perplexity
from lab.zoo.table import BPB_BAR, read_table
from lab.zoo.tokens import VOCABULARY, read_tokenizer

BITS = (8, 6, 5, 4, 3, 2)
MORE = ("draft-0.5m", "llama-3m")


@pytest.mark.parametrize("name", ["qwen3-1m", *(pytest.param(name, marks=pytest.mark.matrix) for name in MORE)])
def test_every_bit_less_costs_more(name: str) -> None:
    """KL grows with every bit that is taken away; eight bits cost next to nothing, two change what is said and make
    the text less likely. Scales that are off by a step, or keys packed as values, are far from free at eight bits."""
    arms = [zoo_arm(name, kv) for kv in ("native", *(f"kv{n}" for n in BITS))]
    native, *found = run_fidelity(arms[0], arms, held_out(3, 41), tail=12, floor_sequences=0, start=EngineHere)
    means = [result.report.kl.value for result in found]
    assert native.report.kl_max == 0.0 < means[0]
    assert means == sorted(means)
    assert len(set(means)) == len(BITS)
    eight, two = found[0].report, found[-1].report
    assert eight.kl.value < 1e-3
    assert eight.top1.value == 1.0
    assert two.kl.value > 100 * eight.kl.value
    assert two.top1.value < 1.0
    assert two.ln_ppl_ratio.value > abs(eight.ln_ppl_ratio.value)


def test_held_out_text_is_likely_and_the_same_words_in_disorder_are_not() -> None:
    """Fewer bits a byte than the n-gram over all training text; targets that are off by one token, or a context that
    is not read, would cost as much as disorder does."""
    ids = held_out(2, 129)
    disorder = [[row[0], *np.random.default_rng(5).permutation(row[1:]).tolist()] for row in ids]
    said, lost = (run_perplexity(zoo_arm("draft-0.5m"), rows, start=EngineHere) for rows in (ids, disorder))
    tokenizer = read_tokenizer(ZOO / "tokenizer")
    size = sum(len(tokenizer.decode(row[1:], skip_special_tokens=False).encode()) for row in ids)
    bits = math.log2(said.perplexity.value) * said.scored / size
    assert bits < BPB_BAR * read_table()["baseline"]["full"]
    assert said.perplexity.value < VOCABULARY / 20
    assert lost.perplexity.value > 5 * said.perplexity.value


def test_eight_bits_go_on_alike_and_two_part() -> None:
    """Greedy from held-out text: a native cache goes on alike to the end, one of fewer bits parts sooner."""
    arms = [zoo_arm("draft-0.5m", kv) for kv in ("native", "kv8", "kv2")]
    same, eight, two = run_fidelity(
        arms[0], arms, held_out(4, 41), tail=12, free=24, floor_sequences=0, start=EngineHere
    )
    assert same.free is not None
    assert eight.free is not None
    assert two.free is not None
    assert same.free.equal == 1.0
    assert two.free.equal < 1.0
    assert eight.free.equal > two.free.equal
    assert all(gap >= 0 for gap in two.free.gaps)
