"""The tasks by name: name -> "module:symbol" of a function that makes one."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import TYPE_CHECKING, cast

from engine import errors

if TYPE_CHECKING:
    from evals.task import Task

TASKS: dict[str, str] = {
    "arc_challenge": "evals.tasks.arc:ArcChallenge",
    "arc_easy": "evals.tasks.arc:ArcEasy",
    "bfcl": "evals.tasks.bfcl:Bfcl",
    "bfcl_256": "evals.tasks.bfcl:Bfcl256",
    "gsm8k": "evals.tasks.gsm8k:Gsm8k",
    "gsm8k_chat": "evals.tasks.gsm8k:Gsm8kChat",
    "hashhop": "evals.tasks.hashhop:HashHop",
    "hashhop_1k": "evals.tasks.hashhop:HashHop1k",
    "hellaswag": "evals.tasks.hellaswag:HellaSwag",
    "humaneval": "evals.tasks.humaneval:HumanEval",
    "ifeval": "evals.tasks.ifeval:IfEval",
    "ifeval_256": "evals.tasks.ifeval:IfEval256",
    "lambada": "evals.tasks.lambada:Lambada",
    "mbpp": "evals.tasks.mbpp:Mbpp",
    "mmlu": "evals.tasks.mmlu:Mmlu",
    "mmlu_0shot": "evals.tasks.mmlu:Mmlu0Shot",
    "synthetic_arithmetic": "evals.tasks.synthetic:Arithmetic",
    "synthetic_copy": "evals.tasks.synthetic:Copy",
    "synthetic_retrieval": "evals.tasks.synthetic:Retrieval",
}


def load_task(name: str) -> Task:
    """Make a task. Errors: `UnknownField` with the known names."""
    if name not in TASKS:
        raise errors.UnknownField("task", name, TASKS)
    module, symbol = TASKS[name].split(":")
    return cast("Callable[[], Task]", getattr(importlib.import_module(module), symbol))()
