"""Runs of a task: a model is asked every item, and each answer is scored and kept by itself.

Items go in fixed groups by their index. A group is asked at once, and is what is committed and what a killed run goes
on from, so that resuming gives what one run would have given. What could not be judged ("not run") is tried again by
each later run of the same key: an answer that is there is judged again, a question that was refused is put again.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Protocol

from engine import errors
from evals.task import Answer, Item, Likelihood, Question, Score, Task

Progress = Callable[[str, int, int | None], None]


@dataclass(frozen=True, kw_only=True)
class Asked:
    """A question as it was put. prompt: the question as JSON; prompt_ids: its token ids, context and continuations
    behind each other, () where a server keeps them to itself. refused: why it could not be put; then there is no
    answer."""

    prompt: str
    prompt_ids: tuple[int, ...] = ()
    answer: Answer | None = None
    refused: str = ""


class Backend(Protocol):
    """Who answers. `document`: everything of it that an answer may depend on; `template_sha256`: of its chat template,
    "" where it has none or keeps it to itself."""

    @property
    def document(self) -> Mapping[str, Any]: ...

    @property
    def template_sha256(self) -> str: ...

    def ask(self, questions: Sequence[Question]) -> list[Asked]:
        """Put all of them at once. What a model or server cannot do with one is told in `refused`; what breaks all
        of them raises."""

    def close(self) -> None: ...


@dataclass(frozen=True, kw_only=True)
class RunInfo:
    """One task run by one backend. items: how many of the task's; group: items asked at once; margin: in points of
    100. `id` names everything that a result depends on."""

    task: str
    version: int
    items: int
    group: int
    chance: float
    margin: float
    template_sha256: str
    backend: Mapping[str, Any]

    @property
    def id(self) -> str:
        return digest(asdict(self))[:16]


@dataclass(frozen=True, kw_only=True)
class ItemResult:
    """One item's result. output: what the model said, likelihoods as JSON."""

    item: str
    cluster: str
    prompt_sha256: str
    prompt_ids: tuple[int, ...]
    output: str
    score: float
    extracted: str
    why: str
    not_run: bool
    prompt_tokens: int
    tokens: int
    finish_reason: str

    @property
    def output_sha256(self) -> str:
        return hashlib.sha256(self.output.encode()).hexdigest()

    @property
    def answer(self) -> Answer | None:
        """What the model said; None where it was not asked."""
        if not (self.output or self.finish_reason):
            return None
        scored = () if self.finish_reason else tuple(Likelihood(**each) for each in json.loads(self.output))
        return Answer(
            text="" if scored else self.output,
            likelihoods=scored,
            finish_reason=self.finish_reason,
            prompt_tokens=self.prompt_tokens,
            tokens=self.tokens,
        )


class Ledger(Protocol):
    """Where results are kept. A group is kept whole or not at all."""

    def groups(self, info: RunInfo) -> Mapping[int, Sequence[ItemResult]]:
        """What is there of this run."""

    def put(self, info: RunInfo, group: int, results: Sequence[ItemResult]) -> None: ...

    def again(self, info: RunInfo, results: Sequence[ItemResult]) -> None:
        """Keep what came of items that were kept as not run; from now on it holds."""


def digest(document: object) -> str:
    """sha256 of a JSON document."""
    return hashlib.sha256(json.dumps(document, sort_keys=True).encode()).hexdigest()


def describe(task: Task, backend: Backend, count: int | None, group: int) -> RunInfo:
    """The run of the first `count` items (None: all). Errors: `InvalidValue` for more than there are."""
    there = len(task.items())
    if count is not None and not 1 <= count <= there:
        raise errors.InvalidValue(f"items of {task.name}", count, f"1..{there}")
    return RunInfo(
        task=task.name,
        version=task.version,
        items=there if count is None else count,
        group=group,
        chance=task.chance,
        margin=task.margin,
        template_sha256=backend.template_sha256 if task.chat else "",
        backend=dict(backend.document),
    )


def run_task(task: Task, backend: Backend, ledger: Ledger, info: RunInfo, progress: Progress) -> list[ItemResult]:
    """All results in the order of the items. Groups that the ledger has are not asked again, apart from items in them
    that were not run."""
    items = task.items()[: info.items]
    kept = dict(ledger.groups(info))
    results: list[ItemResult] = []
    for group, start in enumerate(range(0, len(items), info.group)):
        members = items[start : start + info.group]
        progress(task.name, start, len(items))
        if group not in kept:
            asked = backend.ask([task.question(item) for item in members])
            kept[group] = [_judged(task, item, each) for item, each in zip(members, asked, strict=True)]
            ledger.put(info, group, kept[group])
        elif any(result.not_run for result in kept[group]):
            anew = _again(task, backend, list(zip(members, kept[group], strict=True)))
            judged = [new for new, old in zip(anew, kept[group], strict=True) if old.not_run and not new.not_run]
            if judged:
                ledger.again(info, judged)
            kept[group] = anew
        results += kept[group]
    progress(task.name, len(items), len(items))
    return results


def _again(task: Task, backend: Backend, kept: Sequence[tuple[Item, ItemResult]]) -> list[ItemResult]:
    """The results of a group whose items that were not run had another chance; they change only if they are judged."""
    refused = [item for item, result in kept if result.not_run and result.answer is None]
    asked = backend.ask([task.question(item) for item in refused]) if refused else []
    put = {item.id: each for item, each in zip(refused, asked, strict=True)}
    found = []
    for item, result in kept:
        new, answer = result, result.answer if result.not_run else None
        if item.id in put:
            new = _judged(task, item, put[item.id])
        elif answer is not None:
            score = task.score(item, answer)
            new = replace(result, score=score.value, extracted=score.extracted, why=score.why, not_run=score.not_run)
        found.append(result if new.not_run else new)
    return found


def _judged(task: Task, item: Item, asked: Asked) -> ItemResult:
    answer = asked.answer
    found = Score(value=0.0, why=asked.refused, not_run=True) if answer is None else task.score(item, answer)
    answer = answer or Answer()
    output = json.dumps([asdict(each) for each in answer.likelihoods]) if answer.likelihoods else answer.text
    return ItemResult(
        item=item.id,
        cluster=item.cluster,
        prompt_sha256=hashlib.sha256(asked.prompt.encode()).hexdigest(),
        prompt_ids=asked.prompt_ids,
        output=output,
        score=found.value,
        extracted=found.extracted,
        why=found.why,
        not_run=found.not_run,
        prompt_tokens=answer.prompt_tokens,
        tokens=answer.tokens,
        finish_reason=answer.finish_reason,
    )
