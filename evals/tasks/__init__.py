"""The tasks by name: name -> "module:symbol" of a function that makes one."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import TYPE_CHECKING, cast

from engine import errors

if TYPE_CHECKING:
    from evals.task import Task

TASKS: dict[str, str] = {}


def load_task(name: str) -> Task:
    """Make a task. Errors: `UnknownField` with the known names."""
    if name not in TASKS:
        raise errors.UnknownField("task", name, TASKS)
    module, symbol = TASKS[name].split(":")
    return cast("Callable[[], Task]", getattr(importlib.import_module(module), symbol))()
