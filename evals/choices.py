"""What the tasks of log-likelihoods share: a context, the choices that may follow it, and which one is the likeliest.

Held against the two stacks whose scores are quoted most:

| | here | lm-eval 0.4.13 | mlx_lm.evaluate 0.32.2 |
| --- | --- | --- | --- |
| texts | context, then " " and the choice | the same | lm-eval's: it calls it |
| blanks that end a context | begin each continuation | the same | stay with the context |
| tokens of a continuation | those of both texts as one, behind as many as the context has | the same | the same |
| acc | the choice of the highest sum of nats | the same | lm-eval's |
| acc_norm | of the highest sum per character of the choice, without that " " | the same | lm-eval's |
| sum of nats | float64, of the log-softmax of float32 logits | the model's own | float32 |
| equal choices | the first | the first | the first |
| chat template | never | where it is asked for | where the model has one, unless switched off |
| a context without tokens | not run | a token stands in for it | minus infinity |
| BOS | one, where the tokenizer itself puts one | the same | one, and none with a chat template |
| not a number | wrong | may count as right | may count as right |

Tokens and BOS are the runner's part and are told here because the scores are equal only if they are. Tests hold that
the texts of every item of MMLU (with and without shots), HellaSwag, ARC and LAMBADA are what lm-eval's own code makes
of its task files, and that the code of mlx_lm.evaluate (`frontier eval --backend mlx-lm-evaluate`) gives the same
tokens and first choices and, in float32, likelihoods within 1e-5 nats a token and 1e-6 of a sum.
"""

from __future__ import annotations

import functools
import math
from abc import abstractmethod
from collections.abc import Sequence

from engine import errors
from evals.task import Answer, Choices, Item, Likelihood, Score, Task


def ask(context: str, choices: Sequence[str]) -> Choices:
    """The question whose continuations are " " and each choice; blanks at the end of the context go with them."""
    kept = context.rstrip()
    return Choices(context=kept, continuations=tuple(f"{context[len(kept) :]} {choice}" for choice in choices))


def unusable(likelihoods: Sequence[Likelihood], wanted: int) -> Score | None:
    """The score of an answer that lacks likelihoods (not run) or holds one that is no number (wrong), else None."""
    if len(likelihoods) != wanted:
        return Score(value=0.0, not_run=True, why=f"{len(likelihoods)} likelihoods for {wanted} continuations")
    if any(math.isnan(likelihood.nats) for likelihood in likelihoods):
        return Score(value=0.0, why="a likelihood is not a number")
    return None


def best(values: Sequence[float]) -> int:
    """The index of the highest value, the first of equal ones."""
    return max(range(len(values)), key=values.__getitem__)


class MultipleChoice(Task):
    """One of an item's choices is right, and is to be the likeliest.

    Item data: context, choices (texts), gold (the index of the right one). normalised: whether the score is acc_norm,
    else it is acc; `why` holds the other one where they can differ. extracted: the chosen text.
    """

    normalised = False

    @abstractmethod
    def read(self) -> Sequence[Item]:
        """The items from the data, in their fair order."""

    def items(self) -> Sequence[Item]:
        return self._items

    @functools.cached_property
    def _items(self) -> Sequence[Item]:
        return self.read()

    def context(self, item: Item) -> str:
        """What the choices follow."""
        return str(item.data["context"])

    def choices(self, item: Item) -> Sequence[str]:
        """The texts to choose from."""
        return tuple(item.data["choices"])

    def question(self, item: Item) -> Choices:
        return ask(self.context(item), self.choices(item))

    def score(self, item: Item, answer: Answer) -> Score:
        choices = self.choices(item)
        bad = unusable(answer.likelihoods, len(choices))
        if bad is not None:
            return bad
        nats = [likelihood.nats for likelihood in answer.likelihoods]
        plain = best(nats)
        normalised = best([value / len(choice) for value, choice in zip(nats, choices, strict=True)])
        chosen, other = (normalised, plain) if self.normalised else (plain, normalised)
        gold = item.data["gold"]
        same = len({len(choice) for choice in choices}) == 1
        why = "" if same else f"{'acc' if self.normalised else 'acc_norm'} {int(other == gold)}"
        return Score(value=float(chosen == gold), extracted=choices[chosen], why=why)


def check_choices(where: str, choices: Sequence[str], gold: int) -> None:
    """Raises `errors.CorruptFile` about `where` unless there are two or more choices, none empty, gold one of them."""
    if len(choices) < 2 or not all(choices):
        raise errors.CorruptFile(where, f"{len(choices)} choices, or an empty one; at least two texts are needed")
    if not 0 <= gold < len(choices):
        raise errors.CorruptFile(where, f"the right choice is {gold}, which is not one of {len(choices)}")
