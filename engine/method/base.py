"""A method: how the rows of a running batch advance. The scheduler says which rows, a method says how.

`METHODS` in the package's `__init__` names the one that runs; a fake that honours this contract may take its place.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from engine.sample.processors import Processors
from engine.sample.samplers import Sampler
from engine.types import CacheLayer, TokenLogprob


@dataclass(frozen=True, kw_only=True)
class Task:
    """What a method needs to know of a request. limit: tokens at most; forced: fed in place of what is sampled.

    top_logprobs: None for none, else how many beside the token's own; taps: full-vocabulary arrays to keep.
    """

    prompt: tuple[int, ...]
    limit: int
    seed: int
    processors: Processors
    sampler: Sampler
    forced: tuple[int, ...] | None = None
    top_logprobs: int | None = None
    taps: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Entry:
    """One token of a row. taps: name -> evaluated array [V]; kv_live: the scheme that its forward attended, where taps
    were asked for."""

    token: int
    logprob: TokenLogprob | None = None
    taps: dict[str, Any] | None = None
    kv_live: str = ""


# What a step gave a row: its new tokens (perhaps none yet), or what ended it.
Outcome = tuple[Entry, ...] | Exception


class Row(ABC):
    """One request's state under a method. cached_tokens: of its prompt, those that came out of a kept prefix."""

    cached_tokens: int = 0

    @property
    @abstractmethod
    def chunks_left(self) -> int:
        """Prefill chunks to go before it can take part in a step."""

    @property
    @abstractmethod
    def next_tokens(self) -> int:
        """Tokens of the next of these chunks."""

    @abstractmethod
    def describe(self) -> tuple[CacheLayer, ...]:
        """Its live caches, layer by layer."""

    @abstractmethod
    def kv_status(self) -> str:
        """Whether the asked scheme is really on, read from the live caches."""


class Method(ABC):
    """Advances rows. All calls come from the engine's thread.

    copied_bytes: copied so far because rows joined or left others, and for nothing else. joint: whether several prompts
    may go on in one forward. staged: whether a row's first step waits for the turn behind its last chunk.
    """

    copied_bytes = 0
    joint = False
    staged = False

    @abstractmethod
    def open(self, task: Task) -> Row:
        """A row that has done nothing yet, and holds nothing but what is kept of a prefix of its prompt. Raises
        `BadPrefix` for one that cannot be restored."""

    @abstractmethod
    def prefill(self, rows: Sequence[Row]) -> None:
        """One chunk of each one's prompt, in one forward. A failure is the end of them all."""

    @abstractmethod
    def step(self, rows: Sequence[Row]) -> list[Outcome]:
        """Advance `rows`, whose prompts are in; what each gave, in their order. A failure that cannot be pinned on a
        row is raised, and is the end of them all."""

    @abstractmethod
    def close(self, row: Row) -> None:
        """Free what the row holds. No call is made on it afterwards."""

    def forget(self) -> None:  # noqa: B027 - a method whose rows share nothing has nothing to let go of
        """Let go of what rows share. From any thread, and the last call that is made: nothing runs afterwards."""
