"""Prefixes of prompts in memory: what the caches of a row held behind each of its prefill chunks, for those that begin
with the same tokens.

A tree whose edges are chunks: the ids of one prefill forward lead from what was held before it to what was held behind
it. A prompt follows its own chunks as far as they are there and goes on from where they end, so that its further
forwards are those of a run that found nothing: of the same ids, in the same lengths, over the same caches. That holds
for rings, states and converted caches too; none of them has to be cut anywhere else.

A store belongs to one engine, whose weights, dtype, KV plan and chunk never change, so that they are in no key. What is
found stays; a row gets arrays of its own. Bytes are those of the arrays.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from dataclasses import dataclass, field

import mlx.core as mx

from engine.errors import BadPrefix, InvalidValue
from engine.kv.base import LayerCache
from engine.kv.pieces import Piece, cut, rebuilt
from engine.kv.plan import KVPlan
from engine.kv.project import prefill_lengths
from engine.types import PrefixStatus

Ids = tuple[int, ...]
TOO_LARGE = "no room for a chunk beside what comes before it"
GONE = "what comes before it was let go"


@dataclass(eq=False)
class Node:
    """A boundary: `ids`, the chunk that ends there; pieces: by cache, what that chunk added, `nbytes` of it. tokens,
    whole_bytes: from the prompt's beginning to there."""

    parent: Node | None = None
    ids: Ids = ()
    pieces: tuple[Piece, ...] = ()
    children: dict[Ids, Node] = field(default_factory=dict)
    tokens: int = field(init=False)
    nbytes: int = field(init=False)
    whole_bytes: int = field(init=False)

    def __post_init__(self) -> None:
        before = (0, 0) if self.parent is None else (self.parent.tokens, self.parent.whole_bytes)
        self.nbytes = sum(piece.saved.nbytes for piece in self.pieces)
        self.tokens, self.whole_bytes = before[0] + len(self.ids), before[1] + self.nbytes

    def path(self) -> list[Node]:
        """From the first chunk to this one."""
        node, found = self, list[Node]()
        while node.parent is not None:
            found.append(node)
            node = node.parent
        return found[::-1]


class PrefixStore:
    """`capacity` bytes of prefixes under a plan, in chunks of `chunk` tokens; those that were used longest ago go."""

    def __init__(self, plan: KVPlan, *, chunk: int, capacity: int) -> None:
        self._plan, self._chunk, self._capacity = plan, chunk, capacity
        self._root = Node()
        # The one that was used longest ago first; none before those that go on from it.
        self._order: OrderedDict[Node, None] = OrderedDict()
        self._held = self._requests = self._hits = self._prompt_tokens = self._cached_tokens = self._evicted = 0
        self._refused: Counter[str] = Counter()

    def enter(self, prompt: Ids) -> Visit:
        """What is kept of a prompt, its last token apart. Raises `BadPrefix`, and lets go, what cannot be restored."""
        node, start = self._root, 0
        for length in prefill_lengths(len(prompt) - 1, self._chunk):
            child = node.children.get(prompt[start : start + length])
            if child is None:
                break
            node, start = child, start + length
        caches = self._restored(node) if node.tokens else None
        self._requests += 1
        self._hits += caches is not None
        self._prompt_tokens += len(prompt)
        self._cached_tokens += node.tokens
        return Visit(self, node, caches)

    def clear(self) -> None:
        """Let everything go; what rows have taken stays theirs."""
        for node in list(self._root.children.values()):
            self.drop(node)

    def status(self) -> PrefixStatus:
        """What it holds, and what it was good for so far."""
        return PrefixStatus(
            capacity_bytes=self._capacity,
            held_bytes=self._held,
            boundaries=len(self._order),
            requests=self._requests,
            hits=self._hits,
            prompt_tokens=self._prompt_tokens,
            cached_tokens=self._cached_tokens,
            evicted=self._evicted,
            not_kept=dict(self._refused),
        )

    def add(self, parent: Node, ids: Ids, caches: list[LayerCache]) -> Node | str:
        """The node of what `caches` hold behind `ids`, a chunk behind `parent`; or why it is not kept."""
        if parent.parent is not None and parent not in self._order:
            return GONE
        before = parent.pieces or (None,) * len(caches)
        pieces = tuple(cut(cache, piece) for cache, piece in zip(caches, before, strict=True))
        node = Node(parent, ids, pieces)
        if node.whole_bytes > self._capacity:
            return TOO_LARGE
        self.touch(parent)
        while self._held + node.nbytes > self._capacity:
            self.drop(next(iter(self._order)))
            self._evicted += 1
        mx.eval([a for piece in pieces for a in piece.saved.arrays if a is not None])
        parent.children[ids] = node
        self._order[node] = None
        self._held += node.nbytes
        self.touch(parent)
        return node

    def touch(self, node: Node) -> None:
        """It was of use just now, and so was all that it goes on from."""
        for each in reversed(node.path()):
            self._order.move_to_end(each)

    def drop(self, node: Node) -> None:
        """Let a node go, and all that goes on from it; one that is gone already is left alone."""
        if node not in self._order:
            return
        assert node.parent is not None
        del node.parent.children[node.ids]
        going = [node]
        while going:  # a long prompt in small chunks is a deep tree
            each = going.pop()
            going += each.children.values()
            del self._order[each]
            self._held -= each.nbytes
            each.pieces, each.children = (), {}  # or arrays would live until a collection of cycles

    def refuse(self, why: str) -> None:
        """Count a boundary that is not kept."""
        self._refused[why] += 1

    def _restored(self, node: Node) -> list[LayerCache]:
        path = node.path()
        try:
            caches = rebuilt(self._plan, [each.pieces for each in path], [len(each.ids) for each in path])
            mx.eval([a for cache in caches for a in cache.arrays()])
        except (InvalidValue, ValueError) as error:
            self.drop(path[0])  # which of them is at fault is not known
            raise BadPrefix(node.tokens, str(error)) from error
        self.touch(node)
        return caches


class Visit:
    """A row's way through a store. caches: of what was found of its prompt, `tokens` of it; None for nothing."""

    def __init__(self, store: PrefixStore, node: Node, caches: list[LayerCache] | None) -> None:
        self._store, self._node, self._why = store, node, ""
        self._added: list[Node] = []
        self.tokens, self.caches = node.tokens, caches

    def keep(self, ids: Ids, caches: list[LayerCache]) -> None:
        """Keep what `caches` hold behind `ids`, the chunk that they have just taken. Once one is not kept, those behind
        it are not either."""
        if self._why:
            self._store.refuse(self._why)
            return
        found = self._node.children.get(ids)
        if found is not None:  # a row beside this one was there first
            self._store.touch(found)
            self._node = found
            return
        added = self._store.add(self._node, ids, caches)
        if isinstance(added, str):
            self._why = added
            self._store.refuse(added)
            return
        self._added.append(added)
        self._node = added

    def leave(self, *, whole: bool) -> None:
        """The row ends. One whose prompt is not in as a `whole` takes back what it has added, as far as nobody has gone
        on from it."""
        for node in () if whole else reversed(self._added):
            if not node.children:
                self._store.drop(node)
