"""Checkers of an answer's form: lists, highlights, sections, JSON, titles, beginnings and ends.

Each takes the answer and the instruction's arguments by name, and returns whether the answer follows it.
"""

from __future__ import annotations

import json
import re

CONSTRAINED_ANSWERS = ("My answer is yes.", "My answer is no.", "My answer is maybe.")

_BULLET = re.compile(r"^[ \t]*[*-][ \t]+\S", re.MULTILINE)
_HIGHLIGHT = re.compile(r"\*\*(?!\s)[^*\n]+(?<!\s)\*\*|\*(?!\s)[^*\n]+(?<!\s)\*")
_PLACEHOLDER = re.compile(r"\[([^\[\]\n]+)\]")
_FENCE = re.compile(r"```(?:json)?(.*?)(?:```)?", re.DOTALL | re.IGNORECASE)


def number_bullet_lists(answer: str, *, num_bullets: int) -> bool:
    """Exactly so many lines that start with "*" or "-" and a blank."""
    return len(_BULLET.findall(answer)) == num_bullets


def number_highlighted_sections(answer: str, *, num_highlights: int) -> bool:
    """At least so many *parts* or **parts** within a line, no blank next to the marks."""
    return len(_HIGHLIGHT.findall(answer)) >= num_highlights


def multiple_sections(answer: str, *, section_spliter: str, num_sections: int) -> bool:
    """At least so many marks of a section: the word as it is written, and a number."""
    return len(re.findall(rf"{re.escape(section_spliter)}\s?\d+", answer)) >= num_sections


def number_placeholders(answer: str, *, num_placeholders: int) -> bool:
    """At least so many [names] in square brackets that are not empty."""
    return sum(bool(name.strip()) for name in _PLACEHOLDER.findall(answer)) >= num_placeholders


def postscript(answer: str, *, postscript_marker: str) -> bool:
    """The marker begins a word somewhere, in any case; a blank may follow its dots."""
    pattern = "".join(re.escape(c) + (r"\s?" if c == "." else "") for c in postscript_marker.strip().lower())
    return re.search(rf"(?<![\w.]){pattern}", answer.lower()) is not None


def title(answer: str) -> bool:
    """A title in double angular brackets, in one line: something between its first "<<" and its last ">>"."""
    spans = ((line, line.find("<<"), line.rfind(">>")) for line in answer.split("\n"))
    return any(0 <= start < end and line[start:end].strip("<> \t") for line, start, end in spans)


def json_format(answer: str) -> bool:
    """All of the answer is one JSON value; a markdown fence around it is allowed."""
    text = answer.strip()
    fenced = _FENCE.fullmatch(text)
    try:
        json.loads(fenced[1] if fenced else text)
    except (ValueError, RecursionError):
        return False
    return True


def constrained_response(answer: str) -> bool:
    """One of the three answers is in it, letter by letter."""
    return any(allowed in answer for allowed in CONSTRAINED_ANSWERS)


def two_responses(answer: str) -> bool:
    """Two different non-empty parts between "******"; one divider may open or close the answer."""
    parts = [part.strip() for part in answer.split("******")]
    if len(parts) > 1:
        parts = parts[not parts[0] : len(parts) - (not parts[-1])]
    return all(parts) and len(parts) == 2 and parts[0] != parts[1]


def repeat_prompt(answer: str, *, prompt_to_repeat: str) -> bool:
    """The answer starts with the text, in any case."""
    return answer.strip().lower().startswith(prompt_to_repeat.strip().lower())


def end_checker(answer: str, *, end_phrase: str) -> bool:
    """The answer ends with the phrase, in any case; a quotation mark may close it."""
    return answer.strip().strip('"').lower().endswith(end_phrase.strip().lower())


def quotation(answer: str) -> bool:
    """All of the answer stands between straight double quotation marks."""
    text = answer.strip()
    return len(text) > 1 and text[0] == text[-1] == '"'
