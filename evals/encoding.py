"""How questions become token ids: one BOS, as mlx-lm's generate adds it, and continuations cut as lm-eval cuts them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from datetime import datetime
from typing import Any, Protocol

from evals.task import Choices, Generation, Question

# What a template takes for now: some print the date, and a run that goes on tomorrow must ask what it would have asked.
NOW = datetime(2026, 1, 1, 12)
PINNED: Mapping[str, Any] = {"strftime_now": NOW.strftime}

# Rendered to tell one chat template from another.
SAMPLE = (
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": "Is it late?"},
    {"role": "assistant", "content": "No."},
    {"role": "user", "content": "And now?"},
)


class Encoder(Protocol):
    """What is needed of a tokenizer."""

    has_template: bool

    def encode_prompt(self, text: str) -> list[int]: ...

    def decode(self, token_ids: Sequence[int]) -> str: ...

    def apply_chat_template(
        self, messages: Sequence[Mapping[str, Any]], tools: Sequence[Mapping[str, Any]] | None = None, **variables: Any
    ) -> list[int]: ...


def as_text(question: Question) -> str:
    """A question as JSON: what tells one prompt from another."""
    return json.dumps(asdict(question), sort_keys=True, ensure_ascii=False)


def prompt_ids(question: Generation, encoder: Encoder) -> list[int]:
    """The ids of a prompt, the same on every day. Raises `errors.TemplateMissing`, `errors.InvalidValue` as the
    tokenizer does."""
    if isinstance(question.prompt, str):
        return encoder.encode_prompt(question.prompt)
    return encoder.apply_chat_template(question.prompt, tools=question.tools, **PINNED)


def choice_ids(question: Choices, encoder: Encoder) -> tuple[list[int], list[list[int]]]:
    """The ids of a context and of each continuation.

    Blanks at the context's end go to the continuations. A continuation's ids are those of the whole text behind as many
    as the context alone has (lm-eval's rule), whatever merges across the seam.
    """
    context = question.context.rstrip()
    blanks = question.context[len(context) :]
    ids = encoder.encode_prompt(context)
    wholes = [encoder.encode_prompt(context + blanks + each) for each in question.continuations]
    return ids, [whole[len(ids) :] for whole in wholes]


def template_sample(encoder: Encoder) -> list[int]:
    """The ids of a small conversation; [] without a template."""
    return encoder.apply_chat_template(SAMPLE, **PINNED) if encoder.has_template else []
