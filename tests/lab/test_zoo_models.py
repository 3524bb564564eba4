"""The zoo's trained models where random weights would show nothing: what bits, adapters and drafts do to meaning."""

from __future__ import annotations

import json
import re
from collections import Counter
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from engine import SamplingParams, load, merge_adapter
from evals.ngram import ByteNgram
from evals.skills import SKILLS
from lab.zoo.data import STYLES
from lab.zoo.measure import Size, Yardstick, accuracy, bits_per_byte, losses
from lab.zoo.table import BPB_BAR, read_table
from lab.zoo.text import Articles
from lab.zoo.tokens import read_tokenizer

ZOO = Path(__file__).resolve().parents[1] / "zoo"
# Of the largest zoo model's own skills; slower ones and all others are measured by `frontier zoo check`.
FEW = Size(articles=1, items=2)


@cache
def yardstick() -> Yardstick:
    held = json.loads((ZOO / "held_out.json").read_text(encoding="utf-8"))
    articles = Articles(tuple(held["trained"]), tuple(held["held_out"]))
    return Yardstick(articles, read_tokenizer(ZOO / "tokenizer"), FEW)


def row() -> list[int]:
    """Held-out token ids, one window."""
    return yardstick().windows()[0][0][:128]


def log_probabilities(name: str, **config: str) -> np.ndarray:
    """[L, V] over `row`, in forwards of 64 tokens, so that caches are converted on the way."""
    with load(ZOO / name, dtype="float32", **config) as engine:
        logits = np.asarray(engine.logits(row(), chunk=64, tail=1), np.float64)
    return logits - np.logaddexp.reduce(logits, axis=-1, keepdims=True)


def divergence(p: np.ndarray, q: np.ndarray) -> float:
    """Mean KL(p || q) in nats."""
    return float((np.exp(p) * (p - q)).sum(axis=-1).mean())


def test_divergence_grows_as_bits_fall() -> None:
    """kv8 below kv4, and below 4-bit weights: a scheme that was not applied would be at 0."""
    exact = log_probabilities("llama-3m")
    eight, four = (divergence(exact, log_probabilities("llama-3m", kv=kv)) for kv in ("kv8", "kv4"))
    packed = divergence(exact, log_probabilities("llama-3m-4bit"))
    assert 0 < eight < four
    assert eight < packed


NAMES = [
    "draft-0.5m",
    *(pytest.param(name, marks=pytest.mark.matrix) for name in ("llama-3m", "llama-3m-4bit", "qwen3-1m", "gemma3-1m")),
]


@pytest.mark.parametrize("name", NAMES)
def test_held_out_text_costs_less_than_by_a_byte_n_gram(name: str) -> None:
    """Weights under wrong names, a rope of another base or a window off by one would cost whole bits. The n-gram over
    all training text is the table's; one over a few articles is worse, or the table holds no baseline."""
    few = yardstick()
    baseline = read_table()["baseline"]["full"]
    trained = json.loads((ZOO / "held_out.json").read_text(encoding="utf-8"))["trained"]
    assert ByteNgram(text.encode() for text in trained).bits_per_byte(text.encode() for text in few.texts) > baseline
    with load(ZOO / name, dtype="float32") as engine:
        assert bits_per_byte(engine, *few.windows()) < BPB_BAR * baseline


@pytest.mark.matrix
@pytest.mark.parametrize("style", STYLES)
def test_an_adapter_learned_its_own_style(style: str, tmp_path: Path) -> None:
    """Better than the model alone and than the other adapter on its style; a transposed or unscaled one is neither."""
    other = next(name for name in STYLES if name != style)
    own, foreign = (merge_adapter(ZOO / "llama-3m", ZOO / f"lora-{name}", tmp_path / name) for name in (style, other))
    found = _bits(own, style)
    assert found < 0.9 * _bits(ZOO / "llama-3m", style)
    assert found < 0.9 * _bits(foreign, style)


def _bits(folder: Path, style: str) -> float:
    with load(folder, dtype="float32") as engine:
        return bits_per_byte(engine, *yardstick().windows(style))


def test_a_draft_says_what_its_target_says() -> None:
    """Token by token, far more often than the same words in another order do, which is what chance gives."""
    said = [log_probabilities(name).argmax(axis=-1) for name in ("llama-3m", "draft-0.5m")]
    agreed = float((said[0] == said[1]).mean())
    chance = max(float((said[0] == np.roll(said[1], by)).mean()) for by in (17, 41, 89))
    assert agreed > 0.4
    assert agreed > 4 * chance


@pytest.mark.parametrize(
    "skill", [pytest.param(s, marks=[pytest.mark.matrix] if s == "recall" else []) for s in SKILLS]
)
def test_greedy_answers_of_the_largest_model(skill: str) -> None:
    """Each item is right to its last token, as the table promises of nearly all."""
    assert read_table()["models"]["llama-3m"]["full"]["skills"][skill] > 0.95
    with load(ZOO / "llama-3m", dtype="float32") as engine:
        assert accuracy(engine, yardstick().questions(skill)) == 1.0


def test_losses_are_those_of_the_next_tokens() -> None:
    """A shift by one would make them the losses of tokens already read."""
    ids = row()[:40]
    with load(ZOO / "draft-0.5m", dtype="float32") as engine:
        own = losses(engine, ids)
        likelihood = engine.likelihoods(ids[:1], [ids[1:]])[0]
    assert own.shape == (39,)
    # The engine sums the exponentials in float32, this in float64: some ulps of logits of up to 20 nats.
    assert np.allclose(-own, likelihood.logprobs, rtol=0, atol=2e-5)


def test_greedy_text_is_english() -> None:
    """Behind the title of an article that it has not seen: a fifth of the words are among the twelve that articles use
    most, as in any of them. Tokens in disorder give hardly any, and a text that goes round gives few different ones."""
    held = json.loads((ZOO / "held_out.json").read_text(encoding="utf-8"))
    title, body = held["held_out"][0].split("\n\n", 1)
    counts = Counter(words(" ".join(held["trained"])))
    common = {word for word, _ in counts.most_common(12)}
    tokenizer = read_tokenizer(ZOO / "tokenizer")
    with load(ZOO / "llama-3m", dtype="float32") as engine:
        made = engine.generate(tokenizer.encode(f"{title}\n\n").ids, SamplingParams(max_tokens=60, ignore_eos=True))
    said = words(tokenizer.decode(list(made.tokens)))
    for text in (said, words(body)):
        assert sum(word in common for word in text) > 0.2 * len(text)
    assert len(set(said)) > 10


def words(text: str) -> list[str]:
    """In small letters."""
    return re.findall(r"[a-z]+", text.lower())
