"""Checkers of how long an answer is: paragraphs, words, sentences.

Each takes the answer and the instruction's arguments by name, and returns whether the answer follows it.
"""

from __future__ import annotations

import re

from evals.ifeval.relations import compares
from evals.ifeval.sentences import count_sentences

_FIRST_WORD = re.compile(r"""['"]*([^\s.,?!'"]*)""")


def number_words(answer: str, *, num_words: int, relation: str) -> bool:
    """Words are runs of letters, digits and "_", so that "don't" is two."""
    return compares(len(re.findall(r"\w+", answer)), relation, num_words)


def number_sentences(answer: str, *, num_sentences: int, relation: str) -> bool:
    """Sentences as `sentences.count_sentences` counts them."""
    return compares(count_sentences(answer), relation, num_sentences)


def number_paragraphs(answer: str, *, num_paragraphs: int) -> bool:
    """Exactly so many non-empty parts between the dividers "***"; one divider may open or close the answer."""
    parts = [part.strip() for part in answer.split("***")]
    if len(parts) > 1:
        parts = parts[not parts[0] : len(parts) - (not parts[-1])]
    return all(parts) and len(parts) == num_paragraphs


def nth_paragraph_first_word(answer: str, *, num_paragraphs: int, nth_paragraph: int, first_word: str) -> bool:
    """Exactly so many paragraphs, parted by an empty line, and this one (counted from 1) starts with the word, in any
    case; quotation marks may stand before it."""
    paragraphs = [part.strip() for part in answer.split("\n\n") if part.strip()]
    if len(paragraphs) != num_paragraphs or not 1 <= nth_paragraph <= num_paragraphs:
        return False
    found = _FIRST_WORD.match(paragraphs[nth_paragraph - 1])
    return found is not None and found[1].lower() == first_word.lower()
