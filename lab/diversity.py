"""Self-BLEU: how alike the continuations of one prompt are. Pure.

Each continuation in turn is the hypothesis and the others are its references: the geometric mean of the clipped n-gram
precisions for n = 1..4 over token ids, one added above and below the line from n = 2 on (Lin and Och 2004), so that it
is never 0. All are of one length, and so there is no brevity penalty. 1 means all alike; lower is more diverse.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence

from engine import errors

LONGEST = 4


def grams(tokens: Sequence[int], n: int) -> Counter[tuple[int, ...]]:
    """How often each n-gram occurs."""
    return Counter(tuple(tokens[i : i + n]) for i in range(len(tokens) - n + 1))


def bleu(hypothesis: Sequence[int], references: Sequence[Sequence[int]]) -> float:
    """Of token ids, in (0, 1] where a token is shared, 0 where none is."""
    logs = []
    for n in range(1, LONGEST + 1):
        own = grams(hypothesis, n)
        most: Counter[tuple[int, ...]] = Counter()
        for reference in references:
            most |= grams(reference, n)
        found, total = sum((own & most).values()), sum(own.values())
        smooth = 0 if n == 1 else 1
        if not found + smooth:
            return 0.0
        logs.append(math.log((found + smooth) / (total + smooth)))
    return math.exp(math.fsum(logs) / len(logs))


def self_bleu(rows: Sequence[Sequence[int]]) -> float:
    """The mean over all rows. Raises `InvalidValue` for fewer than two, unequal lengths, or none as long as an n-gram.

    Rows that share no token at all have the value of the least that one could share, so that a ratio exists.
    """
    lengths = {len(row) for row in rows}
    if len(rows) < 2 or len(lengths) != 1 or min(lengths) < LONGEST:
        raise errors.InvalidValue(
            "continuations", [len(row) for row in rows], f"two or more of one length >= {LONGEST}"
        )
    length = lengths.pop()
    totals = [length - n + 1 for n in range(1, LONGEST + 1)]
    least = math.exp(math.fsum(-math.log(t + (i > 0)) for i, t in enumerate(totals)) / LONGEST) / len(rows)
    values = [bleu(row, [*rows[:i], *rows[i + 1 :]]) for i, row in enumerate(rows)]
    return max(math.fsum(values) / len(values), least)
