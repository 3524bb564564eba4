"""Five skills that small models can learn whole: copying, recall, addition, brackets and JSON, made from seeds.

A sample is a list of segments: text that is given, text that is the answer, and filler: so many tokens of ordinary
text, which lie between what is to be remembered and the question. The same generators make what models are trained on
and, from other seeds, what they are asked: of the sums one in ten is never trained on.

- copy: a line of words stands there twice; say it again.
- recall: names with a word each, filler, then a name: its word.
- addition: sums of two numbers of two digits behind other sums.
- brackets: close what is open, innermost first.
- json: fields of a record as a JSON object.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass

from evals.tasks.synthetic import NAMES, WORDS, Draws

FILLER = 500  # tokens, of the samples that are asked
PAIRS = {"(": ")", "[": "]", "{": "}"}
FIELDS = ("name", "age", "pet", "tool", "place", "count")
NUMBERS = ("age", "count")


@dataclass(frozen=True)
class Segment:
    """text, or `filler` tokens of ordinary text. answer: it is what the model is to say."""

    text: str = ""
    answer: bool = False
    filler: int = 0


Sample = tuple[Segment, ...]


@dataclass(frozen=True)
class Skill:
    """asked: one sample whose last segment is the answer. trained: a sample in which every answer counts, easier ones
    among them. chat: (question, answer) of a conversation."""

    asked: Callable[[Draws], Sample]
    trained: Callable[[Draws], Sample]
    chat: Callable[[Draws], tuple[str, str]]


def given(text: str) -> Segment:
    return Segment(text=text)


def answer(text: str) -> Segment:
    return Segment(text=text, answer=True)


def between(draws: Draws, low: int, high: int) -> int:
    """An integer in [low, high]."""
    return low + draws.below(high - low + 1)


def _copy(words: list[str]) -> Sample:
    line = f"Words: {' '.join(words)}\n"
    return given(f"{line}{line}Words: {words[0]}"), answer(f" {' '.join(words[1:])}\n")


def copy_asked(draws: Draws) -> Sample:
    return _copy(draws.pick(WORDS, (6, 9, 12)[draws.below(3)]))


def copy_trained(draws: Draws) -> Sample:
    return _copy(draws.pick(WORDS, between(draws, 2, 12)))


def copy_chat(draws: Draws) -> tuple[str, str]:
    line = " ".join(draws.pick(WORDS, between(draws, 2, 8)))
    return f"Repeat: {line}", line


def _facts(draws: Draws, count: int) -> list[tuple[str, str]]:
    return list(zip(draws.pick(NAMES, count), draws.pick(WORDS, count), strict=True))


def recall_asked(draws: Draws) -> Sample:
    facts = _facts(draws, (2, 4, 6)[draws.below(3)])
    name, word = facts[draws.below(len(facts))]
    listed = "".join(f"{n}: {w}\n" for n, w in facts)
    return given(f"{listed}\n"), Segment(filler=FILLER), given(f"\n\n{name}:"), answer(f" {word}\n")


def recall_trained(draws: Draws) -> Sample:
    """No filler in a third of them, as the line of a list; else up to as much as is asked."""
    facts = _facts(draws, between(draws, 1, 8))
    listed = "".join(f"{n}: {w}\n" for n, w in facts)
    middle: Sample = (given(f"{listed}\n"),)
    if draws.below(3):
        middle = (*middle, Segment(filler=between(draws, 1, FILLER + 20)), given("\n\n"))
    asked = draws.pick(facts, len(facts))
    return (*middle, *(part for n, w in asked for part in (given(f"{n}:"), answer(f" {w}\n"))))


def recall_chat(draws: Draws) -> tuple[str, str]:
    facts = _facts(draws, between(draws, 2, 6))
    name, word = facts[draws.below(len(facts))]
    return f"{', '.join(f'{n}: {w}' for n, w in facts)}. What is {name}?", f"{word}"


def never_trained(a: int, b: int) -> bool:
    """One pair in ten, by its sha256."""
    return int.from_bytes(hashlib.sha256(f"{a}+{b}".encode()).digest()[:4], "big") % 10 == 0


def _pair(draws: Draws, asked: bool) -> tuple[int, int]:
    while True:
        a, b = between(draws, 10, 99), between(draws, 10, 99)
        if never_trained(a, b) == asked:
            return a, b


def _sum(a: int, b: int) -> Sample:
    return given(f"{a} + {b} ="), answer(f" {a + b}\n")


def addition_asked(draws: Draws) -> Sample:
    shown = [_pair(draws, False) for _ in range(4)]
    a, b = _pair(draws, True)
    return given("".join(f"{x} + {y} = {x + y}\n" for x, y in shown) + f"{a} + {b} ="), answer(f" {a + b}\n")


def addition_trained(draws: Draws) -> Sample:
    """Of one digit, and of one or two added to two digits, in a sixth each."""
    kind = draws.below(6)
    if kind == 0:
        return _sum(between(draws, 0, 9), between(draws, 0, 9))
    a, b = _pair(draws, False)
    return _sum(a, between(draws, 1, 2)) if kind == 1 else _sum(a, b)


def addition_chat(draws: Draws) -> tuple[str, str]:
    a, b = _pair(draws, False)
    return f"What is {a} + {b}?", str(a + b)


def _brackets(draws: Draws, length: int) -> tuple[str, str]:
    """So many brackets of which some are open, and what closes them."""
    said: list[str] = []
    opened: list[str] = []
    for left in range(length, 0, -1):
        closes = opened and (len(opened) > 6 or draws.below(5) < 2) and not (left == 1 and len(opened) == 1)
        said.append(PAIRS[opened.pop()] if closes else tuple(PAIRS)[draws.below(len(PAIRS))])
        if not closes:
            opened.append(said[-1])
    return " ".join(said), " ".join(PAIRS[bracket] for bracket in reversed(opened))


def brackets_asked(draws: Draws) -> Sample:
    said, closing = _brackets(draws, (5, 8, 11)[draws.below(3)])
    return given(f"Close: {said} ="), answer(f" {closing}\n")


def brackets_trained(draws: Draws) -> Sample:
    said, closing = _brackets(draws, between(draws, 1, 12))
    return given(f"Close: {said} ="), answer(f" {closing}\n")


def brackets_chat(draws: Draws) -> tuple[str, str]:
    return _brackets(draws, between(draws, 2, 8))


def _record(draws: Draws, count: int) -> tuple[str, str]:
    record: dict[str, str | int] = {}
    for field in draws.pick(FIELDS, count):
        pool = NAMES if field == "name" else WORDS
        record[field] = between(draws, 1, 99) if field in NUMBERS else pool[draws.below(len(pool))]
    return ", ".join(f"{field} {value}" for field, value in record.items()), json.dumps(record)


def json_asked(draws: Draws) -> Sample:
    said, written = _record(draws, (2, 3, 4)[draws.below(3)])
    return given(f"Record: {said}\nJSON:"), answer(f" {written}\n")


def json_trained(draws: Draws) -> Sample:
    said, written = _record(draws, between(draws, 1, 5))
    return given(f"Record: {said}\nJSON:"), answer(f" {written}\n")


def json_chat(draws: Draws) -> tuple[str, str]:
    said, written = _record(draws, between(draws, 1, 4))
    return f"As JSON: {said}", written


SKILLS: dict[str, Skill] = {
    "copy": Skill(copy_asked, copy_trained, copy_chat),
    "recall": Skill(recall_asked, recall_trained, recall_chat),
    "addition": Skill(addition_asked, addition_trained, addition_chat),
    "brackets": Skill(brackets_asked, brackets_trained, brackets_chat),
    "json": Skill(json_asked, json_trained, json_chat),
}
