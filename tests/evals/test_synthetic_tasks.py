"""Copy, arithmetic and retrieval: what they ask, that it is frozen, and that only the right line is right."""

from __future__ import annotations

import hashlib
import re
from collections import Counter

import pytest

from evals.task import Answer, Generation, Item, Score
from evals.tasks.synthetic import ITEMS, NAMES, WORDS, Arithmetic, Copy, Draws, Retrieval, _Made

TASKS = (Copy, Arithmetic, Retrieval)


def prompt(task: _Made, item: Item) -> str:
    asked = task.question(item)
    assert isinstance(asked, Generation)
    assert isinstance(asked.prompt, str)
    assert asked.stop == ("\n",)
    return asked.prompt


@pytest.mark.parametrize("make", TASKS)
def test_items_are_distinct_and_the_same_each_time(make: type[_Made]) -> None:
    items = make().items()
    assert len(items) == ITEMS >= 24
    assert [item.id for item in items] == [f"{i:03}" for i in range(ITEMS)]
    assert len({item.data["prompt"] for item in items}) == ITEMS
    assert {item.cluster for item in items} == {""}
    assert list(make().items()) == list(items)


@pytest.mark.parametrize(
    ("make", "digest"),
    [
        (Copy, "d8a691c645775c76"),
        (Arithmetic, "e2d2ca8cedc4f376"),
        (Retrieval, "8b7192c30ddf7215"),
    ],
)
def test_prompts_are_frozen(make: type[_Made], digest: str) -> None:
    """Another digest is another version of the task."""
    task = make()
    text = "\0".join(f"{prompt(task, item)}\0{item.data['wanted']}" for item in task.items())
    assert (task.version, hashlib.sha256(text.encode()).hexdigest()[:16]) == (1, digest)


def test_copy_to_the_letter() -> None:
    task = Copy()
    for number, item in enumerate(task.items()):
        asked = re.fullmatch(r"Words: (.+)\nWords: (.+)\nWords: (\w+)", prompt(task, item))
        assert asked is not None
        line, again, first = asked.groups()
        assert line == again == f"{first} {item.data['wanted']}"
        assert len(set(line.split())) == (6, 9, 12)[number % 3]
    assert len(set(WORDS)) == len(WORDS)


def test_arithmetic_to_the_letter() -> None:
    task = Arithmetic()
    for number, item in enumerate(task.items()):
        *shown, asked = prompt(task, item).split("\n")
        assert shown == [
            "3 + 4 = 7", "21 + 1 = 22", "45 + 2 = 47", "6 + 2 = 8", "58 + 1 = 59", "34 + 2 = 36", "5 + 5 = 10",
            "79 + 1 = 80", "18 + 2 = 20", "9 + 4 = 13", "66 + 1 = 67", "87 + 2 = 89",
        ]  # fmt: skip
        sides = re.fullmatch((r"([1-9]) \+ ([1-9]) =", r"([1-9]\d) \+ (1) =", r"([1-9]\d) \+ (2) =")[number % 3], asked)
        assert sides is not None
        a, b = sides.groups()
        assert item.data["wanted"] == str(int(a) + int(b))
        assert not any(line.startswith(f"{asked} ") for line in shown)


def test_retrieval_to_the_letter() -> None:
    task = Retrieval()
    places: Counter[int] = Counter()
    for number, item in enumerate(task.items()):
        *listed, asked = prompt(task, item).split("\n")
        size = (4, 6, 8)[number % 3]
        rows = [tuple(line.split(": ")) for line in listed]
        table = dict(rows[:size])
        assert len(table) == len(set(table.values())) == size
        assert sorted(rows[size:]) == sorted(table.items())
        name = asked.removesuffix(":")
        assert asked == f"{name}:"
        assert item.data["wanted"] == table[name]
        places[list(table).index(name)] += 1
    assert max(places.values()) < ITEMS / 3  # the asked name has no place of its own
    assert len(set(NAMES)) == len(NAMES)


@pytest.mark.parametrize("make", TASKS)
def test_only_the_wanted_line_is_right(make: type[_Made]) -> None:
    task = make()
    item = task.items()[2]
    wanted = item.data["wanted"]
    for right in (f" {wanted}", f" {wanted}\n", f"{wanted}  \nLine: more"):
        assert task.score(item, Answer(text=right)) == Score(value=1.0, extracted=wanted)
    for wrong in ("", " ", "\n", f"\n{wanted}", f" {wanted}.", f" {wanted} {wanted}", f" 1{wanted}", f"{wanted[:-1]}"):
        assert task.score(item, Answer(text=wrong)).value == 0.0, wrong
    assert task.score(item, Answer()).value == 0.0


def test_draws_are_even_and_of_their_seed() -> None:
    draws = Draws("a")
    found = Counter(draws.below(6) for _ in range(6000))
    assert set(found) == set(range(6))
    assert all(850 < count < 1150 for count in found.values())
    again, other = Draws("a"), Draws("b")
    assert [again.below(1000) for _ in range(9)] != [other.below(1000) for _ in range(9)]
    assert sorted(Draws("c").pick(range(5), 5)) == [0, 1, 2, 3, 4]
