"""Three easy tasks made from seeds, on which a small model is far above the floor, so that damage can show.

`synthetic_copy`: repeat 3, 5 or 7 words behind two examples. `synthetic_arithmetic`: sums of two numbers of one or two
digits behind four examples. `synthetic_retrieval`: look up one of 4, 6 or 8 names in a list of numbers, behind two
examples of the same list. Raw text; an answer is right if its first line is exactly the wanted one, outer blanks apart.
Guessing scores nothing in any of them.

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
    """size: words of a line."""

    name = "synthetic_copy"
    sizes = (3, 5, 7)
    max_tokens = 32

    def make(self, draws: Draws, size: int) -> tuple[str, str]:
        lines = [" ".join(draws.pick(WORDS, size)) for _ in range(3)]
        shown = "".join(f"Line: {line}\nCopy: {line}\n\n" for line in lines[:2])
        return f"{shown}Line: {lines[2]}\nCopy:", lines[2]


class Arithmetic(_Made):
    """size: digits of both numbers together."""

    name = "synthetic_arithmetic"
    sizes = (2, 3, 4)
    max_tokens = 8
    shown = ((3, 4), (21, 6), (12, 35), (53, 28))

    def make(self, draws: Draws, size: int) -> tuple[str, str]:
        one, two = 1 + draws.below(9), 10 + draws.below(90)
        a, b = {2: (one, 1 + draws.below(9)), 3: (two, one), 4: (two, 10 + draws.below(90))}[size]
        if (a, b) in self.shown:
            return self.make(draws, size)
        return "".join(f"{x} + {y} = {x + y}\n" for x, y in self.shown) + f"{a} + {b} =", str(a + b)


class Retrieval(_Made):
    """size: names in the list. Numbers have two digits and are distinct; the asked name is not one of the examples."""

    name = "synthetic_retrieval"
    sizes = (4, 6, 8)
    max_tokens = 8

    def make(self, draws: Draws, size: int) -> tuple[str, str]:
        table = dict(zip(draws.pick(NAMES, size), draws.pick(range(10, 100), size), strict=True))
        asked = draws.pick(tuple(table), 3)
        listed = "".join(f"{name} has the number {number}.\n" for name, number in table.items())
        shown = "".join(f"{name}: {table[name]}\n" for name in asked[:2])
        return f"{listed}\nThe numbers again:\n{shown}{asked[2]}:", str(table[asked[2]])
