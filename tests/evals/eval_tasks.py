"""A small task, a backend that says what it is told, and a ledger in memory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from evals.encoding import as_text
from evals.run import Asked, ItemResult, RunInfo
from evals.task import Answer, Generation, Item, Question, Score, Task


class Sums(Task):
    """n items, each a sum; the answer is right if it is its number."""

    name, version, chance, margin = "sums", 1, 0.0, 2.0

    def __init__(self, n: int = 20) -> None:
        self._n = n

    def items(self) -> Sequence[Item]:
        return [Item(id=f"sum-{i}", cluster=f"c{i % 4}", data={"i": i}) for i in range(self._n)]

    def question(self, item: Item) -> Question:
        return Generation(prompt=f"{item.data['i']}+1=", max_tokens=4)

    def score(self, item: Item, answer: Answer) -> Score:
        return Score(value=float(answer.text == str(item.data["i"] + 1)), extracted=answer.text)


class Guarded(Sums):
    """Sums that cannot be judged while `open` is false."""

    open = False

    def score(self, item: Item, answer: Answer) -> Score:
        if not self.open:
            return Score(value=0.0, extracted=answer.text, why="no sandbox", not_run=True)
        return super().score(item, answer)


class Said:
    """A backend that is right but for `wrong`, cannot be asked `refuses`, and dies at the question of `dies`."""

    template_sha256 = ""

    def __init__(self, *, wrong: Sequence[int] = (), refuses: Sequence[int] = (), dies: int | None = None) -> None:
        self.wrong, self.refuses, self.dies = wrong, refuses, dies
        self.document: Mapping[str, Any] = {"stack": "said", "wrong": list(wrong)}
        self.asked: list[str] = []
        self.sizes: list[int] = []

    def ask(self, questions: Sequence[Question]) -> list[Asked]:
        self.sizes.append(len(questions))
        return [self._ask(question) for question in questions]

    def _ask(self, question: Question) -> Asked:
        assert isinstance(question, Generation)
        number = int(str(question.prompt).removesuffix("+1="))
        if number == self.dies:
            raise KeyboardInterrupt
        self.asked.append(str(question.prompt))
        if number in self.refuses:
            return Asked(prompt=as_text(question), refused="too long")
        text = str(number + 1 + (number in self.wrong))
        return Asked(
            prompt=as_text(question), prompt_ids=(number,), answer=Answer(text=text, finish_reason="stop", tokens=2)
        )

    def close(self) -> None:
        """Nothing to end."""


class Kept:
    """A ledger in memory."""

    def __init__(self) -> None:
        self.kept: dict[str, dict[int, Sequence[ItemResult]]] = {}

    def groups(self, info: RunInfo) -> Mapping[int, Sequence[ItemResult]]:
        return self.kept.get(info.id, {})

    def put(self, info: RunInfo, group: int, results: Sequence[ItemResult]) -> None:
        assert group not in self.groups(info)
        self.kept.setdefault(info.id, {})[group] = results

    def again(self, info: RunInfo, results: Sequence[ItemResult]) -> None:
        for result in results:
            (group,) = [g for g, held in self.kept[info.id].items() if result.item in {old.item for old in held}]
            held = self.kept[info.id][group]
            assert all(old.not_run for old in held if old.item == result.item)
            self.kept[info.id][group] = [result if old.item == result.item else old for old in held]
