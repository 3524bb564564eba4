"""What the zoo trains on, as token ids: streams of text, and packed rows of skills whose answers alone count.

The same archive, tokenizer and seeds give the same arrays; a machine without network or tokenizer can train on them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from evals.skills import SKILLS, Draws, Sample, answer, given
from lab.zoo.batches import KINDS, ROW, Ids, TrainingData
from lab.zoo.text import Articles
from lab.zoo.tokens import END_OF_TEXT, chat_text

SKILL_ROWS = 24000
STYLED = 3000  # articles that a style is trained on
_SENTENCE_END = re.compile(r"(?<=[.!?]) +")


def lower_style(text: str) -> str:
    """Small letters without punctuation."""
    return re.sub(r"[^\w\s]", "", text.lower())


def lines_style(text: str) -> str:
    """A sentence a line, each behind a star."""
    return "".join(f"* {part}\n" for part in _SENTENCE_END.split(text.replace("\n\n", ". ")))


STYLES: dict[str, Callable[[str], str]] = {"lower": lower_style, "lines": lines_style}


def make_data(articles: Articles, tokenizer: Any, skill_rows: int = SKILL_ROWS) -> TrainingData:
    """Encode the articles and pack `skill_rows` rows of skills. `tokenizer`: a `tokenizers.Tokenizer`."""
    texts = {"text": articles.trained, "held_out": articles.held_out}
    for name, style in STYLES.items():
        texts[name] = tuple(map(style, articles.trained[:STYLED]))
        texts[f"{name}_held_out"] = tuple(map(style, articles.held_out))
    streams = {name: stream(part, tokenizer) for name, part in texts.items()}
    counts = {name: sum(len(text.encode()) for text in part) for name, part in texts.items()}
    packed = [
        pack(KINDS[row % len(KINDS)], Draws(f"zoo/{row}"), streams["text"], tokenizer) for row in range(skill_rows)
    ]
    rows, answers = (np.stack(part) for part in zip(*packed, strict=True))
    return TrainingData(streams, counts, rows, answers)


def stream(texts: Sequence[str], tokenizer: Any) -> Ids:
    """Every text behind an end-of-text token, one after the other."""
    end = tokenizer.token_to_id(END_OF_TEXT)
    ids: list[int] = []
    for encoding in tokenizer.encode_batch(list(texts)):
        ids += [end, *encoding.ids]
    return np.array(ids, np.uint16)


def pack(kind: str, draws: Draws, text: Ids, tokenizer: Any) -> tuple[Ids, NDArray[np.bool_]]:
    """One row of samples of a kind, and which of its tokens are of answers. The last sample is cut off."""
    ids: list[int] = []
    said: list[bool] = []
    for sample in samples(kind, draws):
        for part, is_answer in encode_sample(sample, draws, text, tokenizer):
            ids += part
            said += [is_answer] * len(part)
        if len(ids) >= ROW:
            break
    return np.array(ids[:ROW], np.uint16), np.array(said[:ROW], np.bool_)


def encode_sample(sample: Sample, draws: Draws, text: Ids, tokenizer: Any) -> Iterator[tuple[list[int], bool]]:
    """(token ids, whether they are an answer) of each segment; filler is a piece of `text` that `draws` picks."""
    for segment in sample:
        if segment.filler:
            start = draws.below(len(text) - segment.filler)
            yield [int(token) for token in text[start : start + segment.filler]], False
        else:
            yield tokenizer.encode(segment.text).ids, segment.answer


def samples(kind: str, draws: Draws) -> Iterator[Sample]:
    """Endless samples of a skill, or of "chat"."""
    names = list(SKILLS)
    while True:
        if kind != "chat":
            yield SKILLS[kind].trained(draws)
            continue
        question, wanted = SKILLS[names[draws.below(len(names))]].chat(draws)
        asked, said = chat_text(question, wanted, thought=draws.below(2) == 1)
        yield given(asked), answer(said)
