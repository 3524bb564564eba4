"""The stream concatenates to the tokenizer's decode, cut before the first stop string, for every kind of decoder."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from functools import cache

import pytest
from gguf_files import alphabet

from engine.method.text import TextStream

Decode = Callable[[Sequence[int]], str]
WORDS = ["the", "a", "is", ".", ",", "中文", "😀", "\n", " ", "  ", "e\u0301", "né", "STOP", "end", "\ufffd"]


@cache
def byte_level() -> tuple[Decode, int, frozenset[int]]:
    """GPT-2's kind: tokens are pieces of bytes, any of which may be half a character."""
    from tokenizers import Tokenizer, decoders, models

    symbols = alphabet()
    pieces = ["".join(symbols[b] for b in (" " * (i % 2) + w).encode()) for i, w in enumerate(WORDS * 2)]
    vocab = {t: i for i, t in enumerate(dict.fromkeys([*symbols, *pieces]))}
    tokenizer = Tokenizer(models.BPE(vocab=vocab, merges=[]))
    tokenizer.decoder = decoders.ByteLevel()
    return lambda ids: tokenizer.decode(list(ids), skip_special_tokens=False), len(vocab), frozenset()


@cache
def byte_fallback() -> tuple[Decode, int, frozenset[int]]:
    """Llama 2's kind: a run of bytes is text only as a whole, and the first space of all is stripped."""
    from tokenizers import Tokenizer, decoders, models

    pieces = [f"<0x{b:02X}>" for b in range(256)] + ["▁" * (i % 2) + w for i, w in enumerate(WORDS * 2)]
    pieces += ["▁", "▁▁", "▁the"]
    vocab = {t: i for i, t in enumerate(dict.fromkeys(pieces))}
    tokenizer = Tokenizer(models.BPE(vocab=vocab, merges=[], byte_fallback=True))
    steps = [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    tokenizer.decoder = decoders.Sequence(steps)
    return lambda ids: tokenizer.decode(list(ids), skip_special_tokens=False), len(vocab), frozenset(range(256))


@cache
def metaspace() -> tuple[Decode, int, frozenset[int]]:
    """T5's kind: the first token loses its space."""
    from tokenizers import Tokenizer, decoders, models

    vocab = {t: i for i, t in enumerate(["▁", "▁▁", *("▁" * (i % 2) + w for i, w in enumerate(WORDS))])}
    tokenizer = Tokenizer(models.BPE(vocab=vocab, merges=[]))
    tokenizer.decoder = decoders.Metaspace(prepend_scheme="always")
    # Ids past the vocabulary decode to nothing, as a padded embedding's do.
    return lambda ids: tokenizer.decode(list(ids), skip_special_tokens=False), len(vocab) + 3, frozenset()


KINDS = {"byte_level": byte_level, "byte_fallback": byte_fallback, "metaspace": metaspace}


def cut(text: str, stop: Sequence[str]) -> str:
    found = [text.find(s) for s in stop if s in text]
    return text[: min(found)] if found else text


def run(decode: Decode, tokens: Sequence[int], stop: tuple[str, ...], byte_ids: frozenset[int]) -> tuple[str, int]:
    """(the concatenated stream, tokens consumed); checks every invariant on the way."""
    stream = TextStream(decode, frozenset(), stop, byte_ids)
    text, used = "", 0
    for used, token in enumerate(tokens, 1):
        text += stream.push(token)
        so_far = decode(tokens[:used])
        assert stream.stopped == any(s in so_far for s in stop)
        if stream.stopped:
            break
    assert text == cut(decode(tokens[:used]), stop) or not stream.stopped
    text += stream.finish()
    assert text == cut(decode(tokens[:used]), stop)
    return text, used


def sequence(rng: random.Random, size: int, n: int) -> list[int]:
    """Random tokens, words more often than single bytes."""
    low = min(256, size - 4)
    return [rng.randrange(low, size) if rng.random() < 0.5 and size > 256 else rng.randrange(size) for _ in range(n)]


@pytest.mark.parametrize("kind", KINDS)
def test_stream_is_the_decode_cut_at_the_first_stop(kind: str) -> None:
    decode, size, byte_ids = KINDS[kind]()
    rng = random.Random(0)
    stopped = 0
    for _ in range(1500):
        tokens = sequence(rng, size, rng.randint(1, 40))
        whole = decode(tokens)
        stop: list[str] = []
        for _ in range(rng.randint(0, 3)):
            at = rng.randrange(len(whole)) if whole else 0
            piece = whole[at : at + rng.randint(1, 6)]
            stop += [p for p in (piece, piece + "x", WORDS[rng.randrange(len(WORDS))]) if p and rng.random() < 0.5]
        _, used = run(decode, tokens, tuple(stop), byte_ids)
        stopped += used < len(tokens)
    assert 100 < stopped < 1400


@pytest.mark.parametrize("kind", KINDS)
def test_what_was_pushed_is_never_taken_back(kind: str) -> None:
    """At each point the pushed text begins the decode of every longer run."""
    decode, size, byte_ids = KINDS[kind]()
    rng = random.Random(1)
    for _ in range(300):
        tokens = sequence(rng, size, 24)
        stream, text = TextStream(decode, frozenset(), (), byte_ids), ""
        for i, token in enumerate(tokens):
            text += stream.push(token)
            assert decode(tokens[: i + 1]).startswith(text)
            assert decode(tokens[: i + 2]).startswith(text)


def test_characters_of_several_tokens_come_whole() -> None:
    decode, _, _ = byte_level()
    stream = TextStream(decode, frozenset(), ())
    assert [stream.push(b) for b in "é😀".encode()] == ["", "é", "", "", "", "😀"]
    assert stream.finish() == ""


def test_half_a_character_at_the_end_is_flushed() -> None:
    decode, _, _ = byte_level()
    stream = TextStream(decode, frozenset(), ())
    assert [stream.push(b) for b in b"a\xe4\xb8"] == ["a", "", ""]
    assert stream.finish() == "\ufffd"


def test_stop_strings_over_token_boundaries() -> None:
    decode, _, _ = byte_level()
    stream = TextStream(decode, frozenset(), ("the the", "zz"))
    assert "".join(stream.push(b) for b in b"so the th") == "so "
    assert not stream.stopped
    assert stream.push(ord("e")) == ""
    assert stream.stopped


def test_a_false_start_is_released_as_soon_as_it_is_false() -> None:
    decode, _, _ = byte_level()
    stream = TextStream(decode, frozenset(), ("END!",))
    assert [stream.push(b) for b in b"xENDx"] == ["x", "", "", "", "ENDx"]


def test_a_stop_token_at_the_end_is_no_text() -> None:
    decode, _, _ = byte_level()
    stream = TextStream(decode, frozenset({ord("!")}), ())
    assert [stream.push(b) for b in b"a!b!"] == ["a", "", "!b", ""]
    assert stream.finish() == ""


def test_nothing_comes_after_a_stop() -> None:
    decode, _, _ = byte_level()
    stream = TextStream(decode, frozenset(), ("b",))
    assert [stream.push(b) for b in b"abc"] == ["a", "", ""]
    assert stream.stopped
    assert stream.finish() == ""


@pytest.mark.parametrize("kind", KINDS)
def test_work_per_token_is_bounded(kind: str) -> None:
    """Decoding a long run looks at a few tokens a push, not at the whole run."""
    decode, size, byte_ids = KINDS[kind]()
    looked = 0

    def counting(ids: Sequence[int]) -> str:
        nonlocal looked
        looked += len(ids)
        return decode(ids)

    tokens = sequence(random.Random(3), size, 2000)
    stream = TextStream(counting, frozenset(), ("never seen",), byte_ids)
    text = "".join(stream.push(t) for t in tokens) + stream.finish()
    assert text == decode(tokens)
    assert looked < 20 * len(tokens)
