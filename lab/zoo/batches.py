"""Batches of token ids: of any step, drawn from the seed and the step alone, so that a killed run goes on alike."""

from __future__ import annotations

import hashlib
import io
import zipfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from engine import errors, write_atomically

ROW = 641  # tokens of a row: one more than positions, with room for recall over 500 tokens
Ids = NDArray[np.uint16]
Batch = tuple[NDArray[np.int32], NDArray[np.float32]]
TEXT_PART, SKILL_PART = 3, 2  # rows of text and of skills in a batch, 3 to 2
# Answers of a row of skills weigh together as so many tokens of text, each at most as HEAVIEST.
ROW_WEIGHT, HEAVIEST = 256.0, 12.0
PASSAGE = (24, 160)  # tokens of a passage that is repeated
# Rows of skills of each kind, of 24 that follow each other; "chat" holds all skills in the form of the template.
SHARES = {"recall": 7, "addition": 6, "copy": 3, "brackets": 3, "json": 3, "chat": 2}
KINDS = tuple(kind for kind, share in SHARES.items() for _ in range(share))
FOCUS = {"recall": (1, 4), "copy": (1, 8)}  # parts of a batch of `Focused`
WIDER_FOCUS = {"recall": (7, 32), "copy": (5, 64), "json": (5, 64)}  # and of `Widened`
DRILL = {"recall": (1, 2), "copy": (1, 16), "json": (1, 16)}  # and of `Drilled`
DENSE_FROM, DENSE_UNTIL = 0.1, 1500  # the share of a kind's rows that it begins with, and the step that has them all


@dataclass(frozen=True)
class TrainingData:
    """Streams of token ids, and rows [R, ROW] of skills with `answers` [R, ROW], true where a token is of an answer.

    streams: "text", "held_out", and those of the styles, trained and held out; held_bytes: bytes of each stream's text.
    """

    streams: dict[str, Ids]
    held_bytes: dict[str, int]
    rows: Ids
    answers: NDArray[np.bool_]

    @property
    def sha256(self) -> str:
        """Of every array."""
        digest = hashlib.sha256(repr(sorted(self.held_bytes.items())).encode())
        for name in sorted(self.streams):
            digest.update(name.encode() + self.streams[name].tobytes())
        digest.update(self.rows.tobytes() + np.packbits(self.answers, axis=1).tobytes())
        return digest.hexdigest()

    def save(self, path: Path) -> None:
        """One compressed .npz."""
        arrays = {f"stream/{name}": ids for name, ids in self.streams.items()}
        counts = {f"bytes/{name}": np.array(count) for name, count in self.held_bytes.items()}
        answers = np.packbits(self.answers, axis=1)
        file = io.BytesIO()
        np.savez_compressed(file, allow_pickle=False, rows=self.rows, answers=answers, **arrays, **counts)
        write_atomically(path, file.getvalue(), mode=0o644)


def load_data(path: Path) -> TrainingData:
    """What `TrainingData.save` wrote. Raises `errors.CorruptFile` for another file."""
    try:
        with path.open("rb") as file, np.load(file) as held:
            arrays = dict(held)
        rows, packed = arrays.pop("rows"), arrays.pop("answers")
    except (ValueError, EOFError, KeyError, TypeError, zipfile.BadZipFile) as error:
        raise errors.CorruptFile(path, f"not a file of training data ({error})") from error
    answers = np.unpackbits(packed, axis=1, count=rows.shape[1]).astype(np.bool_)
    named = {kind: {k.removeprefix(kind): v for k, v in arrays.items() if k.startswith(kind)} for kind in _KINDS}
    counts = {name: int(count) for name, count in named["bytes/"].items()}
    return TrainingData(named["stream/"], counts, rows, answers)


_KINDS = ("stream/", "bytes/")


class Mixed:
    """Rows [B, ROW] and weights [B, ROW - 1]: three fifths windows of the text, the others rows of skills."""

    emphasis = 1.0  # on answers

    def __init__(self, data: TrainingData, size: int, seed: int) -> None:
        self._data, self._seed = data, seed
        self.skills = size * SKILL_PART // (TEXT_PART + SKILL_PART)
        self.texts = size - self.skills

    def __call__(self, step: int) -> Batch:
        random = np.random.default_rng([self._seed, step])
        windows = drawn_windows(self._data.streams["text"], random, self.texts)
        picked = self._picked(step, random)
        answers = self._data.answers[picked][:, 1:]
        each = np.minimum(HEAVIEST, ROW_WEIGHT / np.maximum(1, answers.sum(axis=1, keepdims=True)))
        weights = np.concatenate([np.ones((self.texts, ROW - 1)), self.emphasis * answers * each])
        return np.concatenate([windows, self._data.rows[picked]]).astype(np.int32), weights.astype(np.float32)

    def _picked(self, step: int, random: np.random.Generator) -> NDArray[np.intp]:
        """Which rows of skills, as many as `skills`."""
        return random.integers(0, len(self._data.rows), self.skills, dtype=np.intp)


class Focused(Mixed):
    """The same with more of recall and copying. Of those, rows with the most answers come first: there a
    question stands near what it asks about, so that what has to be found is found sooner."""

    emphasis = 2.0
    focus = FOCUS

    def __init__(self, data: TrainingData, size: int, seed: int) -> None:
        super().__init__(data, size, seed)
        self._counts = {kind: size * part // whole for kind, (part, whole) in self.focus.items()}
        self.skills = size * SKILL_PART // (TEXT_PART + SKILL_PART) + size // 8
        self.texts = size - self.skills
        kinds = np.array(KINDS)[np.arange(len(data.rows)) % len(KINDS)]
        dense = np.argsort(-data.answers.sum(axis=1), kind="stable")
        self._ordered = {kind: dense[kinds[dense] == kind] for kind in self.focus}

    def _picked(self, step: int, random: np.random.Generator) -> NDArray[np.intp]:
        share = min(1.0, DENSE_FROM + (1 - DENSE_FROM) * step / DENSE_UNTIL)
        parts = []
        for kind, count in self._counts.items():
            rows = self._ordered[kind]
            parts.append(rows[random.integers(0, max(1, int(share * len(rows))), count)])
        others = self.skills - sum(self._counts.values())
        return np.concatenate([*parts, random.integers(0, len(self._data.rows), others, dtype=np.intp)])


class Widened(Focused):
    """The same with JSON among what there is more of: a model that only sees recall and copying forgets to quote."""

    focus = WIDER_FOCUS


class Drilled(Focused):
    """Seven eighths skills, half of all recall: a state space that has found how to tell the last of a list from the
    others stays there, unless nearly every row asks for all of a list."""

    focus = DRILL

    def __init__(self, data: TrainingData, size: int, seed: int) -> None:
        super().__init__(data, size, seed)
        self.skills = size * 7 // 8
        self.texts = size - self.skills


class Windows:
    """Windows of one stream; every target counts."""

    def __init__(self, data: TrainingData, stream: str, size: int, seed: int) -> None:
        self._ids, self._size, self._seed = data.streams[stream], size, seed

    def __call__(self, step: int) -> Batch:
        windows = drawn_windows(self._ids, np.random.default_rng([self._seed, step]), self._size)
        return windows.astype(np.int32), np.ones((self._size, ROW - 1), np.float32)


class Repeats:
    """Rows of a passage over and over: what a drafter that copies from the text so far guesses well. Every target
    counts."""

    def __init__(self, data: TrainingData, size: int, seed: int) -> None:
        self._ids, self._size, self._seed = data.streams["text"], size, seed

    def __call__(self, step: int) -> Batch:
        random = np.random.default_rng([self._seed, step])
        rows = np.stack([np.resize(self._passage(random), ROW) for _ in range(self._size)])
        return rows.astype(np.int32), np.ones((self._size, ROW - 1), np.float32)

    def _passage(self, random: np.random.Generator) -> Ids:
        length = random.integers(*PASSAGE)
        start = random.integers(0, len(self._ids) - length)
        return self._ids[start : start + length]


class Recited:
    """Half the rows those of `Mixed`, half those of `Repeats`: a model that repeats what it reads twice, and still
    writes text and answers."""

    def __init__(self, data: TrainingData, size: int, seed: int) -> None:
        self._parts = (Mixed(data, size - size // 2, seed), Repeats(data, size // 2, seed))

    def __call__(self, step: int) -> Batch:
        rows, weights = zip(*(part(step) for part in self._parts), strict=True)
        return np.concatenate(rows), np.concatenate(weights)


def drawn_windows(ids: Ids, random: np.random.Generator, count: int) -> Ids:
    """So many windows [count, ROW] of a stream."""
    starts = random.integers(0, len(ids) - ROW, count)
    return ids[starts[:, None] + np.arange(ROW)]
