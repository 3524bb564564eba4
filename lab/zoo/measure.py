"""What a model of the zoo does, measured through the engine's public door from the weights that are stored."""

from __future__ import annotations

import hashlib
import math
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from engine import Engine, SamplingParams, errors, load, merge_adapter, score_mtp
from evals.ngram import ByteNgram
from evals.skills import SKILLS, Draws
from lab.zoo.batches import PASSAGE, ROW, Ids
from lab.zoo.data import STYLES, encode_sample, stream
from lab.zoo.recipe import Recipe
from lab.zoo.text import Articles
from lab.zoo.tokens import read_tokenizer

WEIGHTS = Path("tests/zoo")
Report = Callable[[str, int, int | None], None]
Item = tuple[list[int], list[int]]  # the prompt's token ids, the answer's


@dataclass(frozen=True, kw_only=True)
class Size:
    """How much is measured. articles: held-out ones, from the first; items: of each skill."""

    articles: int
    items: int


SIZES = {"full": Size(articles=200, items=64), "quick": Size(articles=4, items=6)}


class Yardstick:
    """The held-out text, the questions and the baseline, which are the same for all models."""

    def __init__(self, articles: Articles, tokenizer: Any, size: Size) -> None:
        self._articles, self._tokenizer, self.size = articles, tokenizer, size
        self.texts = articles.held_out[: size.articles]
        self._filler: Ids = stream(articles.held_out, tokenizer)

    def baseline(self) -> float:
        """Bits per byte of an order-3 byte n-gram over the training text."""
        ngram = ByteNgram(text.encode() for text in self._articles.trained)
        return ngram.bits_per_byte(text.encode() for text in self.texts)

    def windows(self, style: str | None = None) -> tuple[list[list[int]], int]:
        """Token ids in windows that overlap by one, and the bytes of all their text."""
        texts = self.texts if style is None else [STYLES[style](text) for text in self.texts]
        ids = [int(token) for token in stream(texts, self._tokenizer)]
        cut = [ids[start : start + ROW] for start in range(0, len(ids) - 1, ROW - 1)]
        return cut, sum(len(text.encode()) for text in texts)

    def text(self) -> dict[str, int]:
        """Bytes of the held-out text, and the tokens of it that a model is asked for."""
        cut, count = self.windows()
        return {"bytes": count, "tokens": sum(len(window) - 1 for window in cut)}

    def questions(self, skill: str) -> list[Item]:
        """Of a skill; the filler is held-out text."""
        made = []
        for number in range(self.size.items):
            draws = Draws(f"zoo/asked/{skill}/{number}")
            parts = list(encode_sample(SKILLS[skill].asked(draws), draws, self._filler, self._tokenizer))
            made.append(([token for ids, said in parts if not said for token in ids], parts[-1][0]))
        return made

    def repeated(self) -> list[list[int]]:
        """Rows of a held-out passage over and over."""
        rows = []
        for number in range(self.size.items):
            draws = Draws(f"zoo/repeated/{number}")
            length = PASSAGE[0] + draws.below(PASSAGE[1] - PASSAGE[0])
            start = draws.below(len(self._filler) - length)
            rows.append([int(token) for token in np.resize(self._filler[start : start + length], ROW)])
        return rows


def make_yardstick(articles: Articles, weights: Path, size: Size) -> Yardstick:
    """Raises `errors.ModelNotFound` where `weights` holds no tokenizer: it is another folder."""
    if not (weights / "tokenizer" / "tokenizer.json").is_file():
        raise errors.ModelNotFound(f"{weights}: no zoo; its folder holds tokenizer/tokenizer.json (see --weights)")
    return Yardstick(articles, read_tokenizer(weights / "tokenizer"), size)


def losses(engine: Engine, ids: Sequence[int]) -> np.ndarray:
    """-ln p of every token behind the first, float64 [L - 1]."""
    logits = np.asarray(engine.trace(ids[:-1], sizes=(len(ids) - 1,)).logits, np.float64)
    top = logits.max(axis=-1)
    total = top + np.log(np.exp(logits - top[:, None]).sum(axis=-1))
    return np.asarray(total - logits[np.arange(len(ids) - 1), list(ids[1:])])


def bits_per_byte(engine: Engine, windows: Iterable[Sequence[int]], held_bytes: int) -> float:
    """Of a text in windows; every window begins anew, without what stands before it."""
    nats = math.fsum(float(losses(engine, window).sum()) for window in windows if len(window) > 1)
    return nats / math.log(2) / held_bytes


def accuracy(engine: Engine, items: Sequence[Item]) -> float:
    """The share of items whose answer, to its last token, is what greedy generation says."""
    right = 0
    for prompt, wanted in items:
        said = engine.generate(prompt, SamplingParams(max_tokens=len(wanted), ignore_eos=True))
        right += list(said.tokens) == wanted
    return right / len(items)


def measure(recipe: Recipe, weights: Path, yardstick: Yardstick, report: Report) -> dict[str, Any]:
    """The row of the table for one model: parameters, bytes and sha256 of the file, and what it does."""
    folder = weights / recipe.name
    path = folder / recipe.weights
    if not path.is_file():
        raise errors.ModelNotFound(f"{path}: no such file; `frontier zoo train {recipe.name}` makes it")
    row: dict[str, Any] = {
        "bytes": path.stat().st_size,
        "sha256": hashlib.sha256(path.read_bytes()).hexdigest(),
    }
    if recipe.kind == "mtp":
        return row | _of_head(recipe, weights, yardstick)
    with _opened(recipe, weights) as engine:
        row["parameters"] = engine.parameters
        row |= _of_engine(recipe, engine, yardstick, report)
    if recipe.kind == "adapter":
        del row["parameters"]  # of the model that it is merged into
        assert recipe.base is not None
        with load(weights / recipe.base, dtype="float32") as engine:
            row["bits_per_byte_own_of_base"] = _own(recipe, engine, yardstick)
    return row


@contextmanager
def _opened(recipe: Recipe, weights: Path) -> Iterator[Engine]:
    """The model in float32: unquantised experts run on the CPU in nothing else."""
    with tempfile.TemporaryDirectory() as scratch:
        folder = weights / recipe.name
        if recipe.kind == "adapter":
            assert recipe.base is not None
            folder = merge_adapter(weights / recipe.base, folder, Path(scratch) / recipe.name)
        with load(folder, dtype="float32") as engine:
            yield engine


def _own(recipe: Recipe, engine: Engine, yardstick: Yardstick) -> float:
    """Bits per byte of held-out text in the adapter's own style."""
    return bits_per_byte(engine, *yardstick.windows(recipe.stages[0].data))


def _of_engine(recipe: Recipe, engine: Engine, yardstick: Yardstick, report: Report) -> dict[str, Any]:
    row: dict[str, Any] = {"bits_per_byte": bits_per_byte(engine, *yardstick.windows())}
    if recipe.kind == "adapter":
        return row | {"bits_per_byte_own": _own(recipe, engine, yardstick)}
    if recipe.stages and recipe.stages[-1].data == "recited":
        row["repeated"] = repeated_share(engine, yardstick.repeated())
    skills = {}
    for done, skill in enumerate(SKILLS):
        report(recipe.name, done, len(SKILLS))
        skills[skill] = accuracy(engine, yardstick.questions(skill))
    report(recipe.name, len(SKILLS), len(SKILLS))
    return row | {"skills": skills}


def repeated_share(engine: Engine, rows: Sequence[Sequence[int]]) -> float:
    """The share of tokens in the last half of each row that the model says greedily."""
    right = count = 0
    for row in rows:
        logits = np.asarray(engine.trace(row[:-1], sizes=(len(row) - 1,)).logits)
        said, half = logits.argmax(axis=-1), len(row) // 2
        right += int((said[half:] == np.asarray(row[half + 1 :])).sum())
        count += len(row) - 1 - half
    return right / count


def _of_head(recipe: Recipe, weights: Path, yardstick: Yardstick) -> dict[str, Any]:
    assert recipe.base is not None
    right, nats = score_mtp(weights / recipe.base, weights / recipe.name, yardstick.windows()[0])
    return {"guessed": right, "nats": nats}
