"""What is refused before anything is held, loaded or served."""

from __future__ import annotations

from pathlib import Path

import pytest

from engine import errors
from lab import lock
from lab.cli import main
from lab.commands import golden
from lab.console import Output
from lab.scorecard.runs import NothingMeasured
from lab.scorecard.serve import serve
from lab.store import Store

BAD = [
    (["batch", "--chunk", "0"], "--chunk=0"),
    (["batch", "--launches", "0"], "--launches=0"),
    (["batch", "--rows", "1,1"], "--rows='1,1' is not allowed; allowed: each once"),
    (["batch", "--lever", "nope=1"], "unknown 'nope'"),
    (["batch", "--kinds", "idle"], "unknown 'idle'"),
    (["batch", "--models", "nobody"], "'nobody' is neither a folder, nor a hub id"),
    (["batch", "--bits", "--rows", "2"], "--bits='given with --rows'"),
    (["decode", "--model", "nobody"], "'nobody' is neither a folder, nor a hub id"),
    (["decode", "--kv", "kv7"], "kv='kv7'"),
    (["workload", "short-chat", "--model", "nobody"], "'nobody' is neither a folder, nor a hub id"),
    (["kv", "--launches", "0"], "--launches=0"),
    (["kv", "--contexts", "2_56"], "--contexts='2_56'"),
    (["kv", "--schemes", "kv8,kv8"], "--schemes='kv8,kv8' is not allowed; allowed: each once"),
    (["device", "--rows", "1,1"], "--rows='1,1' is not allowed; allowed: each once"),
    (["device", "--prompts", "128,128"], "--prompts='128,128' is not allowed; allowed: each once"),
    (["kv", "--contexts", "many"], "--contexts='many'"),
    (["graph", "--models", "nobody"], "unknown 'nobody'"),
    (["graph", "--models", "llama,llama"], "--models='llama,llama' is not allowed; allowed: each once"),
    (["decode", "--rounds", "0"], "--rounds=0"),
    (["workload", "lunch"], "unknown 'lunch'"),
    (["workload", "short-chat", "--max-tokens", "5"], "--max-tokens=5"),
    (["workload", "continuations"], "one that is greedy"),
    (["workload", "short-chat", "--launches", "0"], "--launches=0"),
    (["workload", "short-chat", "--rows", "2"], "--rows=2 is not allowed; allowed: 1, of single"),
    (["workload", "ragged", "--rows", "1"], "--rows=1 is not allowed; allowed: an integer >= 2"),
    (["workload", "closed-loop", "--rows", "3"], "--rows=3 is not allowed; allowed: an integer >= 4"),
    (["workload", "fan-out", "--prompt-tokens", "200"], "--prompt-tokens=200 is not allowed; allowed: more than 256"),
    (["workload", "short-chat", "--machine", "loud"], "--machine: unknown 'loud'"),
]


@pytest.mark.parametrize(("words", "named"), BAD)
def test_a_bench_checks_its_flags_before_it_holds_the_machine(
    words: list[str], named: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Planted break: a mistyped flag was said only once the other run had ended, or as that the machine is busy."""

    def held(what: str, path: Path | None = None) -> None:
        raise AssertionError(f"{what} held the machine")

    monkeypatch.setattr(lock, "hold_timing", held)
    assert main(["bench", *words]) == 2
    assert named in capsys.readouterr().err


def test_goldens_without_a_manifest_are_no_goldens(tmp_path: Path) -> None:
    """Planted break: any folder was "not comparable", with exit code 0; so was a record whose manifest was lost."""
    from engine import machine

    with pytest.raises(errors.InvalidValue, match="none in it has a manifest"):
        golden.verify(Output(as_json=False), tmp_path)
    other = tmp_path / "another-machine"
    other.mkdir()
    (other / "manifest.json").write_text('{"mlx": "0", "goldens": {}}', encoding="utf-8")
    assert golden.verify(Output(as_json=False), tmp_path) == 0
    (tmp_path / machine().key).mkdir()
    with pytest.raises(errors.CorruptFile, match="not a readable manifest"):
        golden.verify(Output(as_json=False), tmp_path)


def test_an_empty_scorecard_that_is_to_be_served_names_its_own_database(tmp_path: Path) -> None:
    path = tmp_path / "mine.sqlite"
    with Store.open(str(path)) as store, pytest.raises(NothingMeasured, match=r"mine\.sqlite"):
        serve(store, None, (), 0, Output(as_json=False))


@pytest.mark.parametrize(
    "words",
    [
        ("scorecard",),
        ("selfcheck",),
        ("bench", "device", "--report"),
        ("lab", "run", "kv8"),
        ("lab", "confirm", "kv8"),
        ("zoo", "tokenizer", "--force"),
    ],
)
@pytest.mark.parametrize("below", ["", "further/down"])
def test_a_folder_that_cannot_be_made_is_refused_by_its_flag(
    words: tuple[str, ...], below: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Planted break: a file in its place was an error of the system without a flag, after everything was measured."""
    taken = tmp_path / "taken"
    taken.write_text("a file")
    out = taken / below
    assert main([*words, "--out", str(out)]) == 2
    said = capsys.readouterr().err
    assert f"error: --out={str(out)!r} is not allowed" in said
    assert f"{taken} is a file" in said
