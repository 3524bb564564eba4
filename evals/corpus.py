"""The frozen text set: 64 sequences in four domains, written for this project and pinned by its sha256.

Items are stored domain by domain in turn (prose, code, chat, tools, prose, ...), so that the first n of them are
balanced when 4 divides n. Chat and tool texts carry ChatML markers, which a tokenizer that knows them reads as special
tokens.
"""

from __future__ import annotations

import functools
import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from importlib.resources.abc import Traversable
from typing import Any, Protocol

from engine import errors
from evals.encoding import PINNED

DOMAINS = ("prose", "code", "chat", "tools")
SHA256 = "13687538caa4df1a8b1cc8750f99507b089acc2cf6f4a983939e87ec4496e185"


@dataclass(frozen=True)
class Item:
    """One text. `id` is its domain and number, for instance "code-07"."""

    id: str
    domain: str
    text: str


@dataclass(frozen=True)
class ChatItem(Item):
    """A text of conversations, which the model's own template renders. `chats`: (messages, tools) of each."""

    chats: tuple[tuple[tuple[Mapping[str, Any], ...], tuple[Mapping[str, Any], ...]], ...] = ()


class Encoder(Protocol):
    """What is needed of a tokenizer."""

    def encode(self, text: str) -> Sequence[int]: ...


class ChatEncoder(Encoder, Protocol):
    """What is needed of one for conversations."""

    def apply_chat_template(
        self, messages: Sequence[Mapping[str, Any]], tools: Sequence[Mapping[str, Any]] | None, **variables: Any
    ) -> Sequence[int]: ...


def corpus_file() -> Traversable:
    """The packaged data file."""
    return files("evals").joinpath("data", "corpus.jsonl")


def read_corpus(file: Traversable) -> tuple[Item, ...]:
    """The items of a corpus file. Raises `errors.CorruptFile` when it is missing or not the pinned one."""
    try:
        data = file.read_bytes()
    except OSError as error:
        raise errors.CorruptFile(file, f"cannot be read: {error.strerror}; install the package again") from error
    found = hashlib.sha256(data).hexdigest()
    if found != SHA256:
        raise errors.CorruptFile(file, f"sha256 is {found[:16]}... instead of {SHA256[:16]}...; it is frozen")
    return tuple(Item(**json.loads(line)) for line in data.decode("utf-8").splitlines())


@functools.cache
def corpus() -> tuple[Item, ...]:
    """The items of the frozen text set, in their order."""
    return read_corpus(corpus_file())


def first(items: Sequence[Item], n: int) -> Sequence[Item]:
    """The first n texts of a set. Raises `errors.InvalidValue` for n outside of it."""
    if isinstance(n, bool) or not isinstance(n, int) or not 1 <= n <= len(items):
        raise errors.InvalidValue("sequences", n, f"1..{len(items)} (the text set holds {len(items)})")
    return items[:n]


def domains(n: int) -> tuple[str, ...]:
    """The domain of each of the first n texts of the frozen set."""
    return tuple(item.domain for item in first(corpus(), n))


def sequences(tokenizer: Encoder, n: int, length: int) -> list[list[int]]:
    """`cut` of the first n texts of the frozen set; balanced over its domains when 4 divides n."""
    return cut(tokenizer, first(corpus(), n), length)


def encoded(tokenizer: Encoder | ChatEncoder, item: Item) -> list[int]:
    """The ids of a text; conversations go through the template, one behind the other."""
    if not isinstance(item, ChatItem):
        return list(tokenizer.encode(item.text))
    chat: Any = tokenizer  # whoever asks for conversations brings one with a template
    return [token for messages, tools in item.chats for token in chat.apply_chat_template(messages, tools, **PINNED)]


def cut(tokenizer: Encoder | ChatEncoder, items: Sequence[Item], length: int) -> list[list[int]]:
    """The first `length` token ids of each text.

    Raises `errors.InvalidValue` for a length that one of these texts does not have in this tokenizer,
    `errors.TemplateMissing` for conversations where it has no template.
    """
    if isinstance(length, bool) or not isinstance(length, int) or length < 1:
        raise errors.InvalidValue("length", length, "an integer >= 1")
    whole = [encoded(tokenizer, item) for item in items]
    shortest = min(map(len, whole))
    if shortest < length:
        raise errors.InvalidValue("length", length, f"1..{shortest} (the shortest of these texts in this tokenizer)")
    return [ids[:length] for ids in whole]


def prompt(tokenizer: Encoder, number: int, length: int) -> list[int]:
    """`length` token ids that begin with text `number` of the frozen set; where it is too short the next ones follow.

    Raises `errors.InvalidValue` for more than all of them have.
    """
    if isinstance(length, bool) or not isinstance(length, int) or length < 1:
        raise errors.InvalidValue("length", length, "an integer >= 1")
    items = corpus()
    ids: list[int] = []
    for turn in range(len(items)):
        ids += encoded(tokenizer, items[(number + turn) % len(items)])
        if len(ids) >= length:
            return ids[:length]
    raise errors.InvalidValue("length", length, f"1..{len(ids)} (all texts together)")


def joined(tokenizer: Encoder, n: int, length: int) -> list[list[int]]:
    """`sequences`, also of lengths that a text does not have: then each is of several texts of its domain, and no text
    is in two of them. Sequence i is of the domain that text i is of.

    Raises `errors.InvalidValue` where the texts do not suffice for n of that length.
    """
    whole = [encoded(tokenizer, item) for item in corpus()]
    of_domain = {
        name: [ids for item, ids in zip(corpus(), whole, strict=True) if item.domain == name] for name in DOMAINS
    }
    labels = domains(n)
    for together in range(1, len(whole) // len(DOMAINS) + 1):
        found: list[list[int]] = []
        for i, domain in enumerate(labels):
            index = sum(label == domain for label in labels[:i])
            texts = of_domain[domain][index * together : (index + 1) * together]
            found.append([token for text in texts for token in text] if len(texts) == together else [])
        if all(len(ids) >= length for ids in found):
            return [ids[:length] for ids in found]
        if not all(found):
            break
    raise errors.InvalidValue("length", length, f"less, or fewer than {n} sequences: the texts do not suffice")
