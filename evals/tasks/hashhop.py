"""HashHop: follow a chain of hashes through shuffled lines of a long text. Generated here, with frozen seeds.

After HashHop of Magic (2024), in a form of our own. A hash is 16 random letters, so nothing but the text tells what
follows it. A text of chains of `hops` links, one link a line, in random order, then two of the chains in full as
examples and the start of a third:

    Each line gives a hash and the hash that follows it.

    QwErTyUiOpAsDfGh = ZxCvBnMqWeRtYuIo
    ...

    Chains of 2 hops through these lines:
    A = B = C
    D = E = F
    G =

An answer is right if its first line is exactly the rest of that chain (" H = I"), spaces apart. `length` is the
most characters that a prompt may have; as many chains are used as fit. 28 clusters (1-4 hops, 1,000 to 64,000
characters) of 16 items; any four items in a row have four counts of hops, any seven have seven lengths.
"""

from __future__ import annotations

import hashlib
import itertools
import string
from collections.abc import Iterator, Sequence

from evals.task import Answer, Generation, Item, Score, Task

HOPS = (1, 2, 3, 4)
LENGTHS = (1000, 2000, 4000, 8000, 16000, 32000, 64000)
REPEATS = 16
HASH_LETTERS = 16
EXAMPLES = 2
SHORT = 1000  # hashes are many tokens: 8,000 characters are about 6,000
MAX_TOKENS = 96  # the longest answer has 76 characters


# Bytes below 208 = 4 * 52 become letters, each equally often; the others are left out.
_LETTERS = (string.ascii_letters * 5)[:256].encode()
_LEFT_OUT = bytes(range(208, 256))


def hashes(seed: str) -> Iterator[str]:
    """Endless random hashes: letters from SHAKE-256 of the seed, so that no library's generator can move them."""
    for block in itertools.count():
        stream = hashlib.shake_256(f"{seed}/{block}".encode()).digest(4096)
        letters = stream.translate(_LETTERS, _LEFT_OUT).decode()
        for start in range(0, len(letters) - HASH_LETTERS + 1, HASH_LETTERS):
            yield letters[start : start + HASH_LETTERS]


def text(seed: str, hops: int, chains: Sequence[tuple[str, ...]]) -> str:
    """The prompt. chains: of hops + 1 hashes each; the first is asked, the next two are shown as examples."""
    links = [f"{a} = {b}\n" for chain in chains for a, b in itertools.pairwise(chain)]
    links.sort(key=lambda link: hashlib.sha256((seed + link).encode()).digest())
    examples = "".join(" = ".join(chain) + "\n" for chain in chains[1 : EXAMPLES + 1])
    title = f"Chains of {hops} hop{'s' if hops > 1 else ''} through these lines:"
    head = "Each line gives a hash and the hash that follows it.\n\n"
    return f"{head}{''.join(links)}\n{title}\n{examples}{chains[0][0]} ="


def chains(item: Item) -> list[tuple[str, ...]]:
    """The chains of an item: as many as its length has room for."""
    seed, hops = item.data["seed"], item.data["hops"]
    drawn = hashes(seed)
    few = [tuple(next(drawn) for _ in range(hops + 1)) for _ in range(EXAMPLES + 1)]
    room = item.data["length"] - len(text(seed, hops, few))
    more = room // (hops * len(f"{few[0][0]} = {few[0][1]}\n"))
    return few + [tuple(next(drawn) for _ in range(hops + 1)) for _ in range(more)]


class HashHop(Task):
    """data: hops, length (characters), seed; prompt and answer are made from them where they are needed."""

    name = "hashhop"
    version = 1
    chance = 0.0
    margin = 3.0
    clustered_by = "hops and length"

    def items(self) -> Sequence[Item]:
        # 4 and 7 have no common factor, so that counting along both at once comes by each pair once in 28.
        cells = [(HOPS[i % 4], LENGTHS[i % 7]) for i in range(len(HOPS) * len(LENGTHS))]
        return tuple(self._item(hops, length, repeat) for repeat in range(REPEATS) for hops, length in cells)

    def _item(self, hops: int, length: int, repeat: int) -> Item:
        name = f"hashhop-{hops}-{length}-{repeat}"
        data = {"hops": hops, "length": length, "seed": name}
        return Item(id=name, cluster=f"hops={hops} length={length}", data=data)

    def question(self, item: Item) -> Generation:
        prompt = text(item.data["seed"], item.data["hops"], chains(item))
        return Generation(prompt=prompt, max_tokens=MAX_TOKENS, stop=("\n",))

    def score(self, item: Item, answer: Answer) -> Score:
        wanted = chains(item)[0][1:]
        line = answer.text.split("\n")[0].strip()
        said = tuple(part.strip() for part in line.split("="))
        if said == wanted:
            return Score(value=1.0, extracted=line)
        right = len(list(itertools.takewhile(lambda pair: pair[0] == pair[1], zip(said, wanted, strict=False))))
        return Score(value=0.0, extracted=line, why=f"{right} of {len(wanted)} hops, {len(said)} given")


class HashHop1k(HashHop):
    """Its items of at most 1,000 characters: a task of its own for slow machines."""

    name = "hashhop_1k"

    def items(self) -> Sequence[Item]:
        return tuple(item for item in super().items() if item.data["length"] <= SHORT)
