"""IFEval: 541 prompts whose 25 kinds of instruction can be checked by rule.

The score is 1 if the answer follows every instruction of its prompt strictly. `why` gives the strict and loose figures
and the instructions that were missed. Prompts go through the chat template as one user message; an answer is cut at
1280 tokens, as usual for this set.

chance: the share of prompts that the answer "ok" follows.
"""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

from engine import errors
from evals.ifeval import follows, follows_loosely, require_arguments
from evals.sources import EVAL_FRAMEWORK, json_lines
from evals.task import Answer, Generation, Item, Score, Task

MEMBER = "eval_framework/tasks/ifeval/data/input_data.jsonl"
MAX_TOKENS = 1280


def item_of(row: Mapping[str, Any]) -> Item:
    """One row of the data. Raises `errors.CorruptFile` for a row without its fields or with instructions that no
    checker knows."""
    try:
        names, arguments = row["instruction_id_list"], row["kwargs"]
        instructions = tuple(zip(names, arguments, strict=True))
        for name, given in instructions:
            require_arguments(name, given)
        if not instructions:
            raise errors.InvalidValue("instruction_id_list", names, "at least one instruction")
        data = {"prompt": row["prompt"], "instructions": instructions}
        return Item(id=str(row["key"]), data=data)
    except (KeyError, TypeError, ValueError, errors.FrontierError) as error:
        raise errors.CorruptFile(MEMBER, f"row {row.get('key')!r}: {error!r}") from error


class Ifeval(Task):
    """See the module."""

    name = "ifeval"
    version = 1
    chance = 0.0
    margin = 3.0
    chat = True
    source = EVAL_FRAMEWORK

    @functools.cached_property
    def _items(self) -> tuple[Item, ...]:
        items = [item_of(row) for row in json_lines(EVAL_FRAMEWORK, MEMBER)]
        return tuple(sorted(items, key=lambda item: hashlib.sha256(item.id.encode()).digest()))

    def items(self) -> Sequence[Item]:
        """By the sha256 of their keys."""
        return self._items

    def question(self, item: Item) -> Generation:
        """The prompt as it is, as one user message."""
        return Generation(prompt=({"role": "user", "content": item.data["prompt"]},), max_tokens=MAX_TOKENS)

    def score(self, item: Item, answer: Answer) -> Score:
        """1 if every instruction is followed strictly, else 0."""
        instructions = item.data["instructions"]
        strict = [follows(name, given, answer.text) for name, given in instructions]
        loose = [follows_loosely(name, given, answer.text) for name, given in instructions]
        missed = [name for (name, _), kept in zip(instructions, strict, strict=True) if not kept]
        counts = f"strict {sum(strict)}/{len(strict)}, loose {sum(loose)}/{len(loose)}"
        why = f"{counts}; missed: {', '.join(missed)}" if missed else counts
        return Score(value=float(all(strict)), extracted=answer.text, why=why)
