"""What is excused is what the oracle refuses now, in the words that stand in the list."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from oracles.client import Worker
from oracles.contract import OracleRefused, Probe, StackConfig
from oracles.exclusions import EXCLUSIONS, UNMOVED, Exclusion, find_exclusion, matches
from oracles.recipe import Form, recipes

EMPTY = StackConfig(stack="mlx-lm", model="", compile=False)
PROBE = Probe(token_ids=tuple(range(2, 22)), sizes=(7, 7, 5, 1))
WHOLE_MODULES = {"bitnet", "muse_spark", "olmo"}


@pytest.fixture(scope="module")
def worker() -> Iterator[Worker]:
    with Worker(EMPTY) as worker:
        yield worker


def excused(entry: Exclusion) -> list[tuple[str, Form]]:
    """One form of every recipe that the entry covers."""
    found = []
    for name, recipe in recipes().items():
        quants = [quant for quant in entry.quants if quant is None or quant in recipe.quants]
        form = Form(dtype=entry.dtypes[0], quant=quants[0]) if quants else None
        if form is not None and entry.covers(name, form):
            found.append((name, form))
    return found


def run(worker: Worker, name: str, form: Form, root: Path) -> None:
    """Build, load and run one form in the oracle."""
    folder = worker.make(recipes()[name], form, root)
    worker.load(replace(EMPTY, model=str(folder)))
    worker.probe(PROBE)


@pytest.mark.parametrize("entry", EXCLUSIONS, ids=lambda entry: entry.recipes[0])
def test_the_oracle_still_refuses_in_these_words(worker: Worker, tmp_path: Path, entry: Exclusion) -> None:
    covered = excused(entry)
    assert covered
    for name, form in covered:
        with pytest.raises(OracleRefused) as refusal:
            run(worker, name, form, tmp_path)
        text = " ".join(str(refusal.value).split())
        assert entry.text in text, (name, text)
        assert find_exclusion(name, form, text) == entry


def test_whole_modules_are_exactly_those_that_the_oracle_cannot_run() -> None:
    covered: dict[str, set[bool]] = {}
    for name, recipe in recipes().items():
        excluded = any(entry.covers(name, Form()) for entry in EXCLUSIONS)
        covered.setdefault(recipe.config["model_type"], set()).add(excluded)
    assert {module for module, excluded in covered.items() if excluded == {True}} == WHOLE_MODULES


def test_a_refusal_in_other_words_or_of_another_form_is_not_excused() -> None:
    words = "RuntimeError: [GatherMM::eval] Currently only supports float32."
    half = Form(dtype="bfloat16")
    assert find_exclusion("mixtral", half, f"mlx-lm: {words}") is not None
    assert find_exclusion("mixtral", half, "mlx-lm: ValueError: something else") is None
    assert find_exclusion("mixtral", Form(), words) is None
    assert find_exclusion("mixtral", Form(dtype="bfloat16", quant="q4g32"), words) is None
    assert find_exclusion("llama", half, words) is None
    assert find_exclusion("hunyuan-dense", half, words) is None


def test_every_pattern_names_a_recipe() -> None:
    known = recipes()
    for entry in (*EXCLUSIONS, *UNMOVED):
        assert entry.reason
        assert any(matches(name, entry.recipes) for name in known), entry.recipes
