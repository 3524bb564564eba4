"""What the zoo trains on, and a recipe run from end to end, with a handful of rows."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from engine import errors, load
from evals.skills import SKILLS, Draws, never_trained
from lab.zoo.batches import (
    DENSE_UNTIL,
    KINDS,
    PASSAGE,
    ROW,
    Drilled,
    Focused,
    Mixed,
    Recited,
    TrainingData,
    Widened,
    load_data,
)
from lab.zoo.data import lines_style, lower_style, make_data
from lab.zoo.make import make
from lab.zoo.recipe import Stage, find_recipe
from lab.zoo.text import Articles
from lab.zoo.tokens import read_tokenizer

ZOO = Path(__file__).resolve().parents[1] / "zoo"


@cache
def data() -> TrainingData:
    """Two rows of skills of each of the 24."""
    held = json.loads((ZOO / "held_out.json").read_text(encoding="utf-8"))
    articles = Articles(tuple(held["trained"]), tuple(held["held_out"]))
    return make_data(articles, read_tokenizer(ZOO / "tokenizer"), skill_rows=2 * len(KINDS))


def test_answers_are_the_tokens_that_are_marked() -> None:
    """A mark that is off by one token would train the question."""
    tokenizer = read_tokenizer(ZOO / "tokenizer")
    row = KINDS.index("addition")
    text = tokenizer.decode(data().rows[row][data().answers[row]].tolist())
    assert all(line.strip().isdigit() for line in text.splitlines())
    assert len(text.splitlines()) > 20


def test_text_and_answers_alone_count() -> None:
    """Weights: one on each token of the text, none on a question; the same step is the same batch."""
    rows, weights = Mixed(data(), 10, seed=1)(3)
    assert rows.shape == (10, ROW)
    assert (weights[:6] == 1.0).all()
    assert (weights[6:] == 0.0).mean() > 0.3
    assert all(np.array_equal(a, b) for a, b in zip(Mixed(data(), 10, 1)(3), (rows, weights), strict=True))
    assert not np.array_equal(Mixed(data(), 10, 2)(3)[0], rows)


def test_dense_rows_first() -> None:
    """At first recall is asked near; from `DENSE_UNTIL` on every row of it may come."""
    focused = Focused(data(), 64, seed=1)
    recall = [i for i, row in enumerate(data().rows) if KINDS[i % len(KINDS)] == "recall"]
    assert set(focused._ordered["recall"]) == set(recall)
    first = {int(i) for i in focused._picked(0, np.random.default_rng(0))[:16]}
    later = {int(i) for i in focused._picked(DENSE_UNTIL, np.random.default_rng(0))[:16]}
    assert first == {max(recall, key=lambda i: data().answers[i].sum())}
    assert len(later) > 5
    assert later <= set(recall)


def test_widened_batches_have_more_json() -> None:
    """Before the rows of any kind: 14 of recall, 5 of copying and 5 of JSON, in a batch of 64."""
    picked = Widened(data(), 64, seed=1)._picked(DENSE_UNTIL, np.random.default_rng(0))
    assert [KINDS[row % len(KINDS)] for row in picked[:24]] == ["recall"] * 14 + ["copy"] * 5 + ["json"] * 5
    assert len(picked) == len(Focused(data(), 64, seed=1)._picked(DENSE_UNTIL, np.random.default_rng(0))) == 33


def test_drilled_batches_are_skills_and_half_of_them_recall() -> None:
    """Of 32 rows 28 are of skills, 16 of recall before two of copying and two of JSON; the other four are text."""
    drilled = Drilled(data(), 32, seed=1)
    picked = drilled._picked(DENSE_UNTIL, np.random.default_rng(0))
    assert [KINDS[row % len(KINDS)] for row in picked[:20]] == ["recall"] * 16 + ["copy"] * 2 + ["json"] * 2
    rows, weights = drilled(0)
    assert rows.shape == (32, ROW)
    assert [bool((each == 1.0).all()) for each in weights] == [True] * 4 + [False] * 28


def test_half_of_recited_rows_are_a_passage_over_and_over() -> None:
    """The second half of a batch, every target of it; the first half is that of `Mixed`."""
    rows, weights = Recited(data(), 10, seed=1)(3)
    assert rows.shape == (10, ROW)
    assert all(np.array_equal(a[:5], b) for a, b in zip((rows, weights), Mixed(data(), 5, 1)(3), strict=True))
    assert (weights[5:] == 1.0).all()
    for row in rows[5:]:
        assert any(np.array_equal(row[length:], row[:-length]) for length in range(*PASSAGE))


def test_data_survives_its_file(tmp_path: Path) -> None:
    """Packed marks are cut to a row's length again; a file that is cut off, or another one, is refused."""
    path = tmp_path / "data.npz"
    data().save(path)
    assert load_data(path).sha256 == data().sha256
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(errors.CorruptFile, match="training data"):
        load_data(path)
    np.savez(path, other=np.zeros(3))
    with pytest.raises(errors.CorruptFile, match="training data"):
        load_data(path)


def test_sums_that_are_asked_are_never_trained() -> None:
    """The last sum of a question is one of the tenth that no training sample holds."""
    for number in range(20):
        asked = SKILLS["addition"].asked(Draws(str(number)))[0].text.splitlines()[-1]
        a, b = (int(part) for part in asked.removesuffix(" =").split(" + "))
        assert never_trained(a, b)


def test_styles() -> None:
    """What the adapters learn."""
    assert lower_style("It's A test, of 3.") == "its a test of 3"
    assert lines_style("Title\n\nOne. Two!") == "* Title.\n* One.\n* Two!\n"


@pytest.mark.matrix
def test_a_recipe_of_two_stages(tmp_path: Path) -> None:
    """Twice to the same bytes, and another model than after one stage; the folder loads with its tokenizer."""
    stages = (
        Stage(data="mixed", rows=2, rate=0.003, seed=1, steps=2),
        Stage(data="focused", rows=8, rate=0.003, seed=2, steps=1),
    )
    recipe = replace(find_recipe("draft-0.5m"), stages=stages)
    for name, made in {"one": recipe, "same": recipe, "short": replace(recipe, stages=stages[:1])}.items():
        make(made, ZOO, data(), tmp_path / name, lambda step, steps, loss: None)
    one, same, short = ((tmp_path / name / "model.safetensors").read_bytes() for name in ("one", "same", "short"))
    assert one == same != short
    curves = [json.loads((tmp_path / name / "curve.json").read_text())["stages"] for name in ("one", "short")]
    assert [[(each["data"], each["steps"], each["curve"][-1][0]) for each in curve] for curve in curves] == [
        [("mixed", 2, 2), ("focused", 1, 1)],
        [("mixed", 2, 2)],
    ]
    with load(tmp_path / "one") as engine:
        assert engine.tokenizer is not None
    with pytest.raises(errors.InvalidValue, match="data"):
        make(recipe, ZOO, None, tmp_path / "none", lambda step, steps, loss: None)
