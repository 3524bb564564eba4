"""Checkers of what an answer says: keywords, letters, language, case, punctuation.

Each takes the answer and the instruction's arguments by name, and returns whether the answer follows it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from engine import errors
from evals.ifeval.language import UNDETERMINED, known_languages, language_of, script_of
from evals.ifeval.relations import compares

_CAPITAL_CANDIDATE = re.compile(r"\w(?:[\w'’.&/-]*\w)?")


def existence(answer: str, *, keywords: Sequence[str]) -> bool:
    """Every keyword occurs, in any case, inside of longer words too."""
    low = answer.lower()
    return all(keyword.lower() in low for keyword in keywords)


def frequency(answer: str, *, keyword: str, frequency: int, relation: str) -> bool:
    """How often the keyword occurs, in any case, inside of longer words too; occurrences do not overlap."""
    return compares(answer.lower().count(keyword.lower()), relation, frequency)


def forbidden_words(answer: str, *, forbidden_words: Sequence[str]) -> bool:
    """None of the words occurs as a whole word, in any case."""
    return not any(re.search(rf"\b{re.escape(word)}\b", answer, re.IGNORECASE) for word in forbidden_words)


def letter_frequency(answer: str, *, letter: str, let_frequency: int, let_relation: str) -> bool:
    """How often the character occurs, in any case."""
    return compares(answer.lower().count(letter.lower()), let_relation, let_frequency)


def response_language(answer: str, *, language: str) -> bool:
    """The answer as a whole is in the language of this ISO 639-1 code. Raises `errors.InvalidValue` for a code that
    `language` does not know."""
    if language not in known_languages():
        raise errors.InvalidValue("language", language, sorted(known_languages()))
    return language_of(answer) == language


def _english(answer: str) -> bool:
    return script_of(answer) == "LATIN" and language_of(answer) in ("en", UNDETERMINED)


def english_capital(answer: str) -> bool:
    """No small letter, at least one capital, and not recognisably another language."""
    return answer.isupper() and _english(answer)


def english_lowercase(answer: str) -> bool:
    """No capital letter, at least one small one, and not recognisably another language."""
    return answer.islower() and _english(answer)


def capital_word_frequency(answer: str, *, capital_frequency: int, capital_relation: str) -> bool:
    """How many words are wholly of capitals. "I", "A", "COVID-19", "U.S" and "DON'T" are one each."""
    words = sum(word.isupper() for word in _CAPITAL_CANDIDATE.findall(answer))
    return compares(words, capital_relation, capital_frequency)


def no_comma(answer: str) -> bool:
    """No "," at all; the commas of other scripts are not meant."""
    return "," not in answer
