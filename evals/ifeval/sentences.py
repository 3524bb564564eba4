"""How many sentences a text has.

A sentence ends at ".", "!", "?" or "…" (closing quotes, brackets and markdown marks may follow) when a blank and more
text come after it, and at the full stops of Devanagari and CJK text with or without a blank. Not an end: the dot of a
title ("Dr. Jones"), of a short form that goes on without a capital ("Inc. and"), of a single capital letter
("J. Smith"), of a list number at the start of a line ("1. Wash"), and an ellipsis that goes on in lower case. Line
breaks alone end nothing.

Differs from NLTK's trained punkt model, which published figures use: punkt knows some 150 abbreviations learnt from
news text, counts a list number before a capital as a sentence of its own, and knows neither "।" nor "。".
"""

from __future__ import annotations

import re

TITLES = frozenset({
    "mr", "mrs", "ms", "dr", "prof", "st", "rev", "gen", "capt", "lt", "sgt", "hon", "fig", "vs", "approx", "e.g",
    "i.e",
})  # fmt: skip
SHORT_FORMS = frozenset({
    "etc", "inc", "ltd", "co", "corp", "vol", "ed", "al", "dept", "est", "jr", "sr", "a.m", "p.m", "u.s", "u.k", "u.n",
    "ph.d", "b.c", "a.d", "d.c", "jan", "feb", "mar", "apr", "aug", "sept", "sep", "oct", "nov", "dec",
})  # fmt: skip
_END = re.compile(r"""(?P<mark>[.!?…]+|[।。！？]+)(?P<close>["'”’)\]}»*_]*)(?P<gap>\s*)""")
_LAST_WORD = re.compile(r"[^\s(\[{\"“'*_]*$")
_LIST_NUMBER = re.compile(r"^[ \t>*#-]*\d+$")


def _ends(text: str, match: re.Match[str]) -> bool:
    """Whether this mark is the end of a sentence that more text follows."""
    mark = match["mark"]
    if mark[0] in "।。！？":
        return True
    if not match["gap"]:
        return False
    if mark in ("...", "…"):
        return not text[match.end()].islower()
    if mark != ".":
        return True
    before = text[max(0, match.start() - 200) : match.start()]
    found = _LAST_WORD.search(before)
    word = found[0] if found else ""
    initial = len(word) == 1 and word.isupper() and word != "I"
    number = _LIST_NUMBER.match(before.rsplit("\n", 1)[-1]) is not None
    short = word.lower() in SHORT_FORMS and not text[match.end()].isupper()
    return not (initial or number or short or word.lower() in TITLES)


def count_sentences(text: str) -> int:
    """0 for a text without a letter or digit; a last sentence counts without its full stop."""
    pieces, start = [], 0
    for match in _END.finditer(text):
        if match.end() < len(text) and _ends(text, match):
            pieces.append(text[start : match.end()])
            start = match.end()
    pieces.append(text[start:])
    return sum(any(c.isalnum() for c in piece) for piece in pieces)
