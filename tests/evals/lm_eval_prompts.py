"""Runs lm-eval's own task machinery on rows that it is given, in a process of its own; no test imports it.

    python tests/evals/lm_eval_prompts.py PACKAGE JOBS ANSWERS

PACKAGE is the folder that holds lm_eval. JOBS is a JSON file with a list of jobs: task (a file of lm_eval/tasks),
splits (name -> rows), shots, changes (of the task's configuration). ANSWERS gets a line a job: a list of [context, what
it asks for], the latter continuations, or the arguments of generation. Nothing is downloaded: what lm-eval imports for
data, caches and scores that no task here has is stood in for.
"""

from __future__ import annotations

import functools
import importlib
import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any


class Rows(list[dict[str, Any]]):
    """What is needed of a data set."""

    @property
    def features(self) -> dict[str, Any]:
        return self[0]

    def map(self, change: Callable[[dict[str, Any]], dict[str, Any]]) -> Rows:
        return Rows(row | change(row) for row in self)


def stand_in(data: dict[str, Rows]) -> None:
    """The module `datasets`, which loads `data` and nothing else, and empty ones of what is not used."""
    module = ModuleType("datasets")
    module.__dict__.update(Dataset=Rows, DownloadMode=None, load_dataset=lambda **_: data, __version__="0")
    sys.modules["datasets"] = module
    for name in ("sacrebleu", "dill"):
        sys.modules[name] = ModuleType(name)


def asked(package: Path, job: dict[str, Any], data: dict[str, Rows]) -> Iterator[list[Any]]:
    """What lm-eval asks of each row."""
    data.clear()
    data.update({name: Rows(rows) for name, rows in job["splits"].items()})
    load_yaml = importlib.import_module("lm_eval.tasks._yaml_loader").load_yaml
    config = load_yaml(package / "lm_eval" / "tasks" / job["task"])
    for split in ("training_split", "validation_split", "test_split", "fewshot_split"):
        if config.get(split) not in data:  # we have no rows of it
            config.pop(split, None)
    task = importlib.import_module("lm_eval.api.task").ConfigurableTask(config=config | job["changes"])
    for row in task.eval_docs:
        context = task.fewshot_context(row, num_fewshot=job["shots"])
        found = task.construct_requests(row, context, metadata=("", 0, 1))
        behind = [each.args[1] for each in found] if isinstance(found, list) else found.args[1]
        yield [context, behind]


def main() -> None:
    """See the module."""
    package, jobs, answers = map(Path, sys.argv[1:])
    sys.path.insert(0, str(package))
    data: dict[str, Rows] = {}
    stand_in(data)
    templates = importlib.import_module("lm_eval.utils").env
    templates.from_string = functools.cache(templates.from_string)  # each is compiled anew for every row without it
    with answers.open("w", encoding="utf-8") as out:
        for job in json.loads(jobs.read_text(encoding="utf-8")):
            out.write(json.dumps(list(asked(package, job, data))) + "\n")


if __name__ == "__main__":
    main()
