"""`frontier models`: every module once, what is recorded of it, and totals that add up."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import pytest

from engine import FAMILIES, errors
from lab.commands import models as command
from lab.modules import document, excluded, family_file, read_results, rows, totals
from oracles.modules import ALIASES, modules

FAMILY = {"llama": "engine.graph.families.llama:spec", "olmo": "engine.graph.families.olmo:spec"}
RECORDED = {
    "versions": {"mlx": "0.32.4", "mlx-lm": "0.32.2"},
    "machine": "linux-x86_64-cpu-bundled",
    "commit": "0" * 40,
    "modules": {"llama": {"equal": 7, "not_run": 2, "faulty": 0, "recipes": {}}},
}


def test_each_module_has_a_row_with_its_state() -> None:
    table = {row.module: row for row in rows(RECORDED, FAMILY)}
    assert list(table) == list(modules())
    llama, olmo, mamba = table["llama"], table["olmo"], table["mamba"]
    assert (llama.family, llama.note) == ("engine/graph/families/llama.py", "")
    assert (llama.equal, llama.not_run, llama.faulty) == (7, 2, 0)
    assert olmo.note.startswith("cannot run in the oracle: SystemExit")
    assert (mamba.family, mamba.note, mamba.equal) == (None, "not built: issue 4", None)
    assert totals(list(table.values())) == {
        "modules": 126,
        "built": 2,
        "not_built": 124,
        "not_in_oracle": 3,
        "recorded": 1,
        "equal": 7,
        "not_run": 2,
        "faulty": 0,
    }


def test_only_whole_modules_are_excluded() -> None:
    assert [name for name in modules() if excluded(name)] == ["bitnet", "olmo", "muse_spark"]


def test_registered_families_exist_and_follow_the_oracles_aliases() -> None:
    root = Path(__file__).resolve().parents[2]
    for name in FAMILIES:
        file = family_file(name, FAMILIES)
        assert file is not None
        assert (root / file).is_file()
    for alias, module in ALIASES.items():
        if module in FAMILIES:
            assert FAMILIES.get(alias) == FAMILIES[module], alias


def test_families_beyond_mlx_lm_would_be_named() -> None:
    assert set(FAMILIES) <= {*modules(), *ALIASES}


def test_results_that_are_not_results_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "architectures.json"
    assert read_results(path) is None
    for text in ("{", "[]", '{"modules": {"llama": {"equal": 1}}}'):
        path.write_text(text, encoding="utf-8")
        with pytest.raises(errors.CorruptFile):
            read_results(path)
    path.write_text(json.dumps(RECORDED), encoding="utf-8")
    assert read_results(path) == RECORDED


def test_the_command(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = tmp_path / "architectures.json"
    path.write_text(json.dumps(RECORDED), encoding="utf-8")
    monkeypatch.setattr("oracles.arch.RESULTS", path)
    parser = argparse.ArgumentParser()
    command.add_arguments(parser)
    args = parser.parse_args([])
    args.json = True
    assert command.run(args) == 0
    captured = capsys.readouterr()
    printed = json.loads(captured.out)
    assert {row["module"] for row in printed["modules"]} == set(modules())
    assert printed["totals"] == document(rows(RECORDED), RECORDED)["totals"]
    assert printed["recorded_on"]["commit"] == "0" * 40
    assert [model["name"] for model in printed["models"]] == ["smollm2-135m-instruct", "smollm2-135m-instruct-fp32"]
    assert "7 equal, 2 not run, 0 faulty cells recorded of 1 modules" in captured.err
    assert "126 modules" in captured.err
