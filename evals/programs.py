"""Judging a program that a model wrote: where its text ends, and what the sandbox says of it."""

from __future__ import annotations

from collections.abc import Sequence

from evals import sandbox
from evals.task import Score


def cut(text: str, stop: Sequence[str]) -> str:
    """The text up to the first stop string in it."""
    return text[: min((at for at in map(text.find, stop) if at >= 0), default=len(text))]


def judge(program: str, tests: str, extracted: str) -> Score:
    """1 if the program passes its tests, 0 if not; not run where this machine has no sandbox."""
    verdict = sandbox.run(program, tests)
    if verdict.kind == "refused":
        return Score(value=0.0, extracted=extracted, why=verdict.why, not_run=True)
    if verdict.kind == "passed":
        return Score(value=1.0, extracted=extracted)
    return Score(value=0.0, extracted=extracted, why=f"{verdict.kind}: {verdict.why}")
