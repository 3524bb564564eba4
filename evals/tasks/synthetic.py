"""Three easy tasks made from seeds, on which a small model is far above the floor, so that damage can show.

`synthetic_copy`: a line of 6, 9 or 12 words stands there twice; say it again. `synthetic_arithmetic`: sums of a digit
and a digit, or of two digits and 1 or 2, behind twelve examples. `synthetic_retrieval`: look up one of 4, 6 or 8 names
in a list of words. Raw text; an answer is right if its first line is exactly the wanted one, outer blanks apart.
Guessing scores nothing, except for a word of the list.

Each has 192 items, and any three in a row hold its three sizes. They are drawn from sha256 of a seed and a count, so
that no library's generator can move them.
"""

from __future__ import annotations

import functools
import hashlib
import itertools
from abc import abstractmethod
from collections.abc import Sequence
from typing import TypeVar

from evals.task import Answer, Generation, Item, Score, Task

T = TypeVar("T")

ITEMS = 192
_WORDS = """
    apple bird boat book bread bridge candle castle chair cloud coffee corn desk dog door farm fire fish flower forest
    garden glass gold grass hand hat hill horse house island key king lake lamp leaf lion map market milk mirror moon
    mountain night ocean paper pencil queen rain river road rose sand school ship silver snow star stone street sugar
    summer table tiger tower tree water wind window winter wood
"""
_NAMES = """
    Adam Alice Anna Ben Carl Clara David Emma Eric Frank Grace Helen Henry Ivan Jack James Jane John Julia Kate Laura
    Leo Lucy Mark Mary Max Mike Nina Oscar Paul Peter Rose Ruth Sam Sara Simon Tom Victor
"""
WORDS, NAMES = tuple(_WORDS.split()), tuple(_NAMES.split())


class Draws:
    """Random numbers of a seed. Each has 256 bits, so that a remainder favours nothing."""

    def __init__(self, seed: str) -> None:
        self._seed = seed
        self._count = itertools.count()

    def below(self, n: int) -> int:
        """An integer in [0, n)."""
        digest = hashlib.sha256(f"{self._seed}/{next(self._count)}".encode()).digest()
        return int.from_bytes(digest, "big") % n

    def pick(self, pool: Sequence[T], count: int) -> list[T]:
        """Distinct members of a pool, in random order."""
        left = list(pool)
        return [left.pop(self.below(len(left))) for _ in range(count)]


class _Made(Task):
    """Item data: prompt, wanted (the right line). `sizes`: of the items, in turn."""

    version = 1
    chance = 0.0
    margin = 3.0
    sizes: tuple[int, int, int]
    max_tokens: int

    @abstractmethod
    def make(self, draws: Draws, size: int) -> tuple[str, str]:
        """(prompt, wanted line) of one item."""

    def items(self) -> Sequence[Item]:
        return self._items

    @functools.cached_property
    def _items(self) -> Sequence[Item]:
        found: dict[str, Item] = {}
        attempt = 0
        while len(found) < ITEMS:
            number = len(found)
            prompt, wanted = self.make(Draws(f"{self.name}/{self.version}/{attempt}"), self.sizes[number % 3])
            found.setdefault(prompt, Item(id=f"{number:03}", data={"prompt": prompt, "wanted": wanted}))
            attempt += 1
        return tuple(found.values())

    def question(self, item: Item) -> Generation:
        return Generation(prompt=item.data["prompt"], max_tokens=self.max_tokens, stop=("\n",))

    def score(self, item: Item, answer: Answer) -> Score:
        line = answer.text.split("\n")[0].strip()
        return Score(value=float(line == item.data["wanted"]), extracted=line)


class Copy(_Made):
    """size: words of the line. Its first word is given, so that what is wanted is never in doubt."""

    name = "synthetic_copy"
    sizes = (6, 9, 12)
    max_tokens = 32

    def make(self, draws: Draws, size: int) -> tuple[str, str]:
        words = draws.pick(WORDS, size)
        line = f"Words: {' '.join(words)}\n"
        return f"{line}{line}Words: {words[0]}", " ".join(words[1:])


class Arithmetic(_Made):
    """size: what the second number is: 0 for any digit, behind a digit; 1 or 2 for itself, behind two digits."""

    name = "synthetic_arithmetic"
    sizes = (0, 1, 2)
    max_tokens = 8
    shown = (
        *((3, 4), (21, 1), (45, 2), (6, 2), (58, 1), (34, 2)),
        *((5, 5), (79, 1), (18, 2), (9, 4), (66, 1), (87, 2)),
    )

    def make(self, draws: Draws, size: int) -> tuple[str, str]:
        a, b = (10 + draws.below(90), size) if size else (1 + draws.below(9), 1 + draws.below(9))
        if (a, b) in self.shown:
            return self.make(draws, size)
        return "".join(f"{x} + {y} = {x + y}\n" for x, y in self.shown) + f"{a} + {b} =", str(a + b)


class Retrieval(_Made):
    """size: names in the list, which stands there twice, the second time in another order."""

    name = "synthetic_retrieval"
    chance = 0.18  # a random word of the list: the mean of 1/4, 1/6, 1/8
    sizes = (4, 6, 8)
    max_tokens = 8

    def make(self, draws: Draws, size: int) -> tuple[str, str]:
        table = list(zip(draws.pick(NAMES, size), draws.pick(WORDS, size), strict=True))
        listed = [f"{name}: {word}\n" for name, word in [*table, *draws.pick(table, size)]]
        name, word = table[draws.below(size)]
        return f"{''.join(listed)}{name}:", word
