"""The 25 checkers on hand-written answers, against the recorded ones of another implementation, and the task."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from instruction_cases import cases
from language_samples import SAMPLES

import evals.ifeval as ifeval
from engine import errors
from evals.ifeval import CHECKERS, content, follows, follows_loosely, loose_forms, require_arguments
from evals.ifeval.language import language_of, script_of
from evals.ifeval.relations import compares
from evals.ifeval.sentences import count_sentences
from evals.sources import EVAL_FRAMEWORK, fetch
from evals.task import Answer, Generation, Item
from evals.tasks.ifeval import PATH, IfEval

# id -> (arguments, an answer that follows, an answer that does not)
EXAMPLES: dict[str, tuple[dict[str, Any], str, str]] = {
    "change_case:capital_word_frequency": (
        {"capital_frequency": 2, "capital_relation": "at least"}, "NO way, I said", "No way, I said",
    ),
    "change_case:english_capital": ({}, "THE END OF IT.", "The END OF IT."),
    "change_case:english_lowercase": ({}, "the end of it.", "the end of It."),
    "combination:repeat_prompt": ({"prompt_to_repeat": "Tell me. "}, "tell me. Well.", "Well. Tell me."),
    "combination:two_responses": ({}, "One.\n******\nTwo.", "One.\n******\nOne."),
    "detectable_content:number_placeholders": ({"num_placeholders": 2}, "[name] of [city]", "[name] of (city)"),
    "detectable_content:postscript": ({"postscript_marker": "P.S."}, "Bye.\nP. S. Call.", "Bye.\nMaps.Call."),
    "detectable_format:constrained_response": ({}, "Well. My answer is no.", "My answer is never."),
    "detectable_format:json_format": ({}, '```json\n{"a": [1]}\n```', "{'a': [1]}"),
    "detectable_format:multiple_sections": (
        {"section_spliter": "Day", "num_sections": 2}, "Day 1\na\nDay 2\nb", "Day 1\na\nDay two\nb",
    ),
    "detectable_format:number_bullet_lists": ({"num_bullets": 2}, "* a\n- b", "* a\n* b\n* c"),
    "detectable_format:number_highlighted_sections": ({"num_highlights": 2}, "*a b* **c**", "*a b* c"),
    "detectable_format:title": ({}, "<<River>>\nIt flows.", "<<>>\nIt flows."),
    "keywords:existence": ({"keywords": ["Tea", "milk"]}, "Milkshake or tea", "Milk or coffee"),
    "keywords:forbidden_words": ({"forbidden_words": ["tea"]}, "A teapot", "A Tea, please"),
    "keywords:frequency": ({"keyword": "ice", "frequency": 2, "relation": "less than"}, "Nice", "Nice ICE"),
    "keywords:letter_frequency": ({"letter": "#", "let_frequency": 2, "let_relation": "at least"}, "#a #b", "#a"),
    "language:response_language": ({"language": "mr"}, SAMPLES["mr"], SAMPLES["hi"]),
    "length_constraints:nth_paragraph_first_word": (
        {"num_paragraphs": 2, "nth_paragraph": 2, "first_word": "then"}, 'A.\n\n"Then, b.', "Then a.\n\nB.",
    ),
    "length_constraints:number_paragraphs": ({"num_paragraphs": 2}, "A.\n***\nB.", "A.\n\nB."),
    "length_constraints:number_sentences": ({"num_sentences": 2, "relation": "less than"}, "Dr. No came.", "He. Came."),
    "length_constraints:number_words": ({"num_words": 3, "relation": "at least"}, "one, two three", "one two"),
    "punctuation:no_comma": ({}, "one two", "one, two"),
    "startend:end_checker": ({"end_phrase": "That is all."}, "Well. that is all. ", "That is all. Bye."),
    "startend:quotation": ({}, ' "Well."\n', '"Well." he said'),
}  # fmt: skip

ORACLE: list[tuple[str, dict[str, Any], str, bool]] = json.loads(
    (Path(__file__).parent / "data" / "ifeval_oracle.json").read_text(encoding="utf-8")
)

# Answers on which the other implementation says otherwise; the reasons stand in evals/ifeval/__init__.py.
OTHERWISE = {
    ("change_case:capital_word_frequency", "DON'T GO"),
    ("change_case:capital_word_frequency", "R&D II"),
    ("change_case:english_capital", SAMPLES["fr"].upper()),
    ("change_case:english_capital", SAMPLES["es"].upper()),
    ("change_case:english_capital", "A 1 B"),
    ("change_case:english_capital", "HELLO WORLD"),
    ("change_case:english_lowercase", "a 1 b"),
    ("change_case:english_lowercase", "we were here, 24/7 and you?"),
    ("detectable_content:number_placeholders", "[]"),
    ("detectable_content:number_placeholders", "[ ]"),
    ("detectable_content:postscript", "Engine harbor music bread candle bread?\n\nP.P.S. Call me."),
    ("detectable_format:json_format", "{}\n```"),
    ("detectable_format:number_bullet_lists", "*one\n*two"),
    ("detectable_format:number_bullet_lists", "-one\n-two"),
    ("detectable_format:number_bullet_lists", "* one\n\n* two\n---"),
    ("detectable_format:number_bullet_lists", "*Note*\n* one\n* two"),
    ("detectable_format:number_bullet_lists", "- 5\n-5"),
    ("detectable_format:number_highlighted_sections", "*a\nb* *c*"),
    ("detectable_format:number_highlighted_sections", "a * b * c * d * e"),
    ("detectable_format:number_highlighted_sections", "**a*"),
    ("detectable_format:number_highlighted_sections", "* item *"),
    ("detectable_format:number_highlighted_sections", "*one * two*"),
    ("language:response_language", "12345 67890!"),
    ("length_constraints:nth_paragraph_first_word", "One.\n\n\n\nLemon cake."),
    ("length_constraints:nth_paragraph_first_word", "\n\nOne.\n\nLemon."),
    ("length_constraints:number_sentences", "Tea, milk, etc. are sold."),
    ("length_constraints:number_sentences", "Well... No."),
    ("length_constraints:number_sentences", "1. Wash the cup.\n2. Dry it."),
    ("length_constraints:number_sentences", "Buy milk, e.g. oats."),
}


def wrong_examples() -> set[str]:
    """Ids whose checker judges one of its two examples wrongly."""
    return {
        name
        for name, (arguments, good, bad) in EXAMPLES.items()
        if not follows(name, arguments, good) or follows(name, arguments, bad)
    }


def test_every_checker_tells_right_from_wrong() -> None:
    assert EXAMPLES.keys() == CHECKERS.keys()
    assert len(CHECKERS) == 25
    for name, (arguments, _, _) in EXAMPLES.items():
        require_arguments(name, arguments)
    assert wrong_examples() == set()


@pytest.mark.parametrize("verdict", [True, False])
@pytest.mark.parametrize("name", CHECKERS)
def test_a_checker_that_always_says_the_same_is_found(
    name: str, verdict: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = ifeval.checker
    monkeypatch.setattr(
        ifeval, "checker", lambda asked: (lambda answer, **_: verdict) if asked == name else real(asked)
    )
    assert wrong_examples() == {name}


def test_as_the_other_implementation_but_for_the_listed_answers() -> None:
    assert [tuple(row[:3]) for row in ORACLE] == list(cases())
    assert all(count >= 20 for count in Counter(name for name, *_ in ORACLE).values())
    assert {name for name, *_ in ORACLE} == CHECKERS.keys()
    found = set()
    for name, arguments, answer, said in ORACLE:
        random_letter = name == "keywords:letter_frequency" and not arguments["letter"].isalpha()
        if not random_letter and follows(name, arguments, answer) != said:
            found.add((name, answer))
    assert found == OTHERWISE


def test_an_answer_without_a_character_follows_nothing() -> None:
    for name, (arguments, _, _) in EXAMPLES.items():
        assert not follows(name, arguments, " \n")
        assert not follows_loosely(name, arguments, "")


def test_loose_forms_drop_lines_and_asterisks() -> None:
    assert set(loose_forms("Sure:\n*a*\nb\nBye")) == {
        "Sure:\n*a*\nb\nBye", "*a*\nb\nBye", "Sure:\n*a*\nb", "*a*\nb",
        "Sure:\na\nb\nBye", "a\nb\nBye", "Sure:\na\nb", "a\nb",
    }  # fmt: skip
    assert follows_loosely("startend:quotation", {}, 'Here you are:\n"text"')
    assert not follows("startend:quotation", {}, 'Here you are:\n"text"')
    assert not follows_loosely("punctuation:no_comma", {}, "a\nb, c\nd")


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("", 0), ("...", 0), ("No end", 1), ("One. Two! Three? Four", 4), ("He met Dr. Who. She did not.", 2),
        ("Inc. and co. are short. Yes.", 2), ("It is 3.5 m. Long.", 2), ("Wait... what? Yes", 2),
        ("A. B. Smith came.", 1),
        ("So did I. Then he left.", 2), ('"Go." He went.', 2), ("1. Wash\n2. Dry it. Done.", 2), ("वह आया। वह गया।", 2),
        ("来了。走了。", 2), ("one\n\ntwo", 1), ("We left at 5 p.m. Then rain.", 2),
    ],
)  # fmt: skip
def test_sentences(text: str, count: int) -> None:
    assert count_sentences(text) == count


def test_languages() -> None:
    assert {code: language_of(text) for code, text in SAMPLES.items()} == {code: code for code in SAMPLES}
    assert language_of("") == language_of("123 !") == language_of("Xylophon Zzz") == ""
    assert script_of("日本の子どもたち漢字漢字漢字") == "HIRAGANA"
    assert not content.english_lowercase("ангел")


def test_unknown_instructions_and_arguments_are_refused() -> None:
    with pytest.raises(errors.UnknownField, match="no_colon"):
        require_arguments("punctuation:no_colon", {})
    with pytest.raises(errors.InvalidValue, match="num_words"):
        require_arguments("length_constraints:number_words", {"relation": "at least"})
    with pytest.raises(errors.InvalidValue, match="unexpected"):
        require_arguments("punctuation:no_comma", {"extra": 1})
    with pytest.raises(errors.InvalidValue, match="about"):
        require_arguments("length_constraints:number_words", {"relation": "about", "num_words": 3})
    with pytest.raises(errors.InvalidValue, match="xx"):
        require_arguments("language:response_language", {"language": "xx"})
    assert [compares(2, "at least", 2), compares(2, "less than", 2)] == [True, False]


ROWS = [
    {
        "key": key,
        "prompt": f"Say {key} without a comma, in quotation marks.",
        "instruction_id_list": ["punctuation:no_comma", "startend:quotation"],
        "kwargs": [{}, {}],
    }
    for key in range(5)
]


def task_on(rows: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch) -> IfEval:
    monkeypatch.setattr("evals.rows.json_lines", lambda source, path: rows)
    return IfEval()


def test_items_and_scores_of_the_task(monkeypatch: pytest.MonkeyPatch) -> None:
    task = task_on(ROWS, monkeypatch)
    items = task.items()
    assert sorted(item.id for item in items) == [f"ifeval-{key}" for key in range(5)]
    assert [item.id for item in items] == [item.id for item in task_on(ROWS[::-1], monkeypatch).items()]
    asked = task.question(items[0])
    assert isinstance(asked, Generation)
    assert asked.prompt == ({"role": "user", "content": items[0].data["prompt"]},)
    good, half, loose = (task.score(items[0], Answer(text=text)) for text in ('"one"', "one", 'Sure,\n"one"'))
    assert (good.value, good.why) == (1.0, "strict 2/2, loose 2/2")
    assert (half.value, half.why) == (0.0, "strict 1/2, loose 1/2; missed: startend:quotation")
    assert (loose.value, loose.why[:22]) == (0.0, "strict 0/2, loose 2/2;")
    assert task.score(items[0], Answer()).value == 0.0
    thought = task.score(items[0], Answer(text='<think>Well, so.</think>\n"one"'))
    assert (thought.value, thought.extracted) == (1.0, '\n"one"')


@pytest.mark.parametrize(
    "change",
    [
        {"instruction_id_list": ["punctuation:no_comma"]}, {"instruction_id_list": []}, {"kwargs": [{}, {"a": 1}]},
        {"instruction_id_list": ["punctuation:no_comma", "startend:nothing"]}, {"kwargs": [{}, None]}, {"key": "one"},
        {"prompt": None}, {"key": 1},
    ],
)  # fmt: skip
def test_damaged_rows_are_named(change: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(errors.CorruptFile):
        task_on([*ROWS[1:], {**ROWS[0], **change}], monkeypatch).items()


ODD = [
    "",
    "\x00",
    "\ud800",
    "[" * 5000,
    "*" * 5000,
    "<<" * 5000,
    '{"a":' * 5000,
    "(\n" * 3000,
    "." * 5000,
    "1. " * 3000,
]


@pytest.mark.parametrize("text", ODD)
def test_no_answer_makes_a_score_raise(text: str) -> None:
    instructions = tuple((name, arguments) for name, (arguments, _, _) in EXAMPLES.items())
    item = Item(id="odd", data={"prompt": "", "instructions": instructions})
    assert IfEval().score(item, Answer(text=text)).value == 0.0


@pytest.mark.matrix
def test_real_prompts() -> None:
    fetch(EVAL_FRAMEWORK)
    task = IfEval()
    items = task.items()
    assert len(items) == 541, PATH
    kinds = Counter(name for item in items for name, _ in item.data["instructions"])
    assert kinds.keys() == CHECKERS.keys()
    assert sum(kinds.values()) == 834
    assert len({name for item in items[:60] for name, _ in item.data["instructions"]}) >= 20
    fixed = sum(task.score(item, Answer(text='"ok"')).value for item in items)
    assert fixed == pytest.approx(task.chance * 541)
