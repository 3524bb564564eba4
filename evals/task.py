"""The contract of a task: frozen items, what a model is asked about each, and how its answer is scored.

A task is one file of `evals/tasks`: data, prompt, extraction, score. Two kinds of question exist. `Choices`: how likely
are these continuations of a text; `Generation`: what comes after a prompt, within a pinned length. A task of raw text
and one of chat messages are two tasks.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from engine import errors
from evals.sources import Source


@dataclass(frozen=True, kw_only=True)
class Item:
    """One item. id: its name for as long as the task has its version; cluster: items of one cluster are not
    independent (a subject, a passage), "" where each stands alone; data: what prompt and score read."""

    id: str
    cluster: str = ""
    data: Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class Choices:
    """How likely is each continuation of `context`? They are texts that follow it, with their leading space."""

    context: str
    continuations: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Generation:
    """What comes after `prompt`, a text or chat messages, greedily: at most max_tokens, up to a stop string.

    tools: definitions that go through the chat template; with a text they are `errors.InvalidValue`.
    """

    prompt: str | tuple[Mapping[str, Any], ...]
    max_tokens: int
    stop: tuple[str, ...] = ()
    tools: tuple[Mapping[str, Any], ...] | None = None

    def __post_init__(self) -> None:
        if self.tools is not None and isinstance(self.prompt, str):
            raise errors.InvalidValue("tools", len(self.tools), "None for a text: they go through the chat template")


Question = Choices | Generation


@dataclass(frozen=True, kw_only=True)
class Likelihood:
    """Of one continuation. nats: the sum of its tokens' log-probabilities; tokens: how many; greedy: whether each of
    them was the model's first choice."""

    nats: float
    tokens: int
    greedy: bool


@dataclass(frozen=True, kw_only=True)
class Answer:
    """What a model said: `likelihoods` to `Choices`, `text` to `Generation`. finish_reason: "stop", "length", or "" for
    likelihoods. prompt_tokens, tokens: counts."""

    text: str = ""
    likelihoods: tuple[Likelihood, ...] = ()
    finish_reason: str = ""
    prompt_tokens: int = 0
    tokens: int = 0


@dataclass(frozen=True, kw_only=True)
class Score:
    """value: 0..1. extracted: what of the answer was judged. why: where the value needs a reason. not_run: the item
    could not be judged at all (for instance no sandbox), which is no value."""

    value: float
    extracted: str = ""
    why: str = ""
    not_run: bool = False


class Task(ABC):
    """A frozen set of items and how they are asked and scored.

    name: of the task; version: raised whenever a prompt, an item or a score changes; chance: what guessing scores;
    margin: the drop, in points of 100, that a gate allows; chat: whether prompts go through the chat template; source:
    where the data comes from, None where the task makes it; clustered_by: what `Item.cluster` tells, "" where every
    item stands alone.
    """

    name: str
    version: int
    chance: float
    margin: float
    chat: bool = False
    source: Source | None = None
    clustered_by: str = ""

    @abstractmethod
    def items(self) -> Sequence[Item]:
        """All of them, in a fixed order in which any first n are a fair sample. Raises `errors.CorruptFile` and
        `evals.sources.MissingData` as the source does."""

    @abstractmethod
    def question(self, item: Item) -> Question:
        """What a model is asked."""

    @abstractmethod
    def score(self, item: Item, answer: Answer) -> Score:
        """How good an answer is. Never raises for whatever a model may have said."""
