"""IFEval: 541 prompts whose 25 kinds of instruction can be checked by rule (Zhou et al. 2023).

The score is 1 if the answer follows every instruction of its prompt strictly. `why` gives how many instructions were
followed strictly and loosely, and those that were missed. Prompts go through the chat template as one user message; an
answer is cut at 1280 tokens, as usual for this set; `ifeval_256`, a task of its own for slow machines, cuts at 256.
What stands before "</think>" is not judged. Prompts are not clustered: each stands alone.

chance: what the best fixed answer that was tried scores, "ok" in double quotation marks: 111 prompts ask for no more
than quotation marks, the absence of a comma or word, small letters or a short text.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from engine import errors
from evals.ifeval import follows, follows_loosely, require_arguments
from evals.rows import Row, fair, read_rows
from evals.sources import EVAL_FRAMEWORK
from evals.task import Answer, Generation, Item, Score, Task

PATH = "eval_framework/tasks/ifeval/data/input_data.jsonl"
MAX_TOKENS, SHORT = 1280, 256


def item_of(row: Row) -> Item:
    """data: prompt; instructions, pairs of an id and its arguments. Raises `errors.CorruptFile` for a row without its
    fields or with an instruction that no checker knows."""
    names, arguments = row.texts("instruction_id_list"), row.values.get("kwargs")
    if not isinstance(arguments, list) or len(arguments) != len(names):
        raise errors.CorruptFile(row.where, "kwargs is not one object for each instruction")
    for name, given in zip(names, arguments, strict=True):
        if not isinstance(given, Mapping):
            raise errors.CorruptFile(row.where, f"the arguments of {name} are a {type(given).__name__}")
        try:
            require_arguments(name, given)
        except (errors.InvalidValue, errors.UnknownField) as error:
            raise errors.CorruptFile(row.where, str(error)) from error
    instructions = tuple(zip(names, arguments, strict=True))
    return Item(id=f"ifeval-{row.integer('key')}", data={"prompt": row.text("prompt"), "instructions": instructions})


class IfEval(Task):
    """See the module."""

    name = "ifeval"
    version = 1
    chance = 111 / 541
    margin = 3.0
    chat = True
    source = EVAL_FRAMEWORK
    max_tokens = MAX_TOKENS

    def items(self) -> Sequence[Item]:
        return fair((item_of(row) for row in read_rows(EVAL_FRAMEWORK, PATH)), PATH)

    def question(self, item: Item) -> Generation:
        return Generation(prompt=({"role": "user", "content": item.data["prompt"]},), max_tokens=self.max_tokens)

    def score(self, item: Item, answer: Answer) -> Score:
        instructions = item.data["instructions"]
        text = answer.text.rpartition("</think>")[2]
        strict = [follows(name, given, text) for name, given in instructions]
        loose = [follows_loosely(name, given, text) for name, given in instructions]
        missed = [name for (name, _), kept in zip(instructions, strict, strict=True) if not kept]
        counts = f"strict {sum(strict)}/{len(strict)}, loose {sum(loose)}/{len(loose)}"
        why = f"{counts}; missed: {', '.join(missed)}" if missed else counts
        return Score(value=float(all(strict)), extracted=text, why=why)


class IfEval256(IfEval):
    """The same prompts, answers cut at 256 tokens."""

    name = "ifeval_256"
    max_tokens = SHORT
