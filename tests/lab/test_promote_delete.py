"""How an experiment ends: what may be promoted or deleted, what that changes, and what the audit then watches."""

from __future__ import annotations

import itertools
import json
import os
from collections.abc import Callable, Iterator
from datetime import date
from pathlib import Path

import pytest
from life_fakes import CPU, CUDA, MAC, composed, decide, source_tree

from engine import LEVERS, errors
from lab import edits
from lab.arms import ArmConf, kind_of
from lab.audit import audit
from lab.config import ExperimentConf, compose
from lab.edits import NotWritable, beside
from lab.lifecycle import NotDecided, Plan, act, plan_delete, plan_extend, plan_promote, write_declaration
from lab.store import Store
from lab.tables import BreadcrumbRow
from lab.targets import by_target, is_decided, latest
from lab.tree import Tree, removal_of, set_default, table_text, unregister
from lab.trouble import DatabaseLocked

NO, YES = "no gain on this machine key", "promote on this machine key"
DAY, LATE = date(2026, 12, 5), date(2026, 12, 31)


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    return source_tree(tmp_path / "tree", "fuse", "kv8", "compile_step")


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with Store.open(str(tmp_path / "lab.sqlite")) as opened:
        yield opened


def snapshot(tree: Tree) -> dict[str, str]:
    return {str(p.relative_to(tree.root)): p.read_text() for p in sorted(tree.root.rglob("*")) if p.is_file()}


def test_a_variant_says_whose_an_experiment_is() -> None:
    plain = ArmConf()
    assert kind_of(plain, ArmConf(fuse="quantized")) == "ours"
    assert kind_of(plain, ArmConf(kv="kv8")) == "oracle-owned"
    assert kind_of(plain, ArmConf(kv="kv8/4")) == "ours"
    assert kind_of(plain, ArmConf(chunk=512)) == "oracle-owned"


@pytest.mark.parametrize(
    ("verdict", "ends"),
    [
        ("promote on this machine key", True),
        ("default on this machine key (counted)", True),
        ("no gain on this machine key", True),
        ("delete: inside +-delta", True),
        ("opt-in (expiring)", True),
        ("screened-in, needs a quiet machine", False),
        ("undecided: time", False),
        ("confirm", False),
        ("rerun", False),
    ],
)
def test_which_verdicts_end_an_experiment(verdict: str, ends: bool) -> None:
    assert is_decided(verdict) is ends


def test_a_quick_run_does_not_hide_an_earlier_decision(store: Store) -> None:
    decide(store, "fuse", CPU, "promote on this machine key", "3")
    decide(store, "fuse", CPU, "undecided: quick profile", "8")
    assert {key: row.verdict for key, row in latest(store.decisions("fuse")).items()} == {
        CPU: "promote on this machine key"
    }
    rows = by_target(compose("fuse").experiment.targets, store.decisions("fuse"))
    assert {target: [row.rule_row for row in found] for target, found in rows.items()} == {
        "linux-x86_64-cpu": ["3"],
        "darwin-arm64": [],
        "linux-x86_64-cuda": [],
    }


@pytest.mark.parametrize("verdict", [None, "no gain on this machine key", "confirm", "undecided: quick profile"])
def test_promote_refuses_without_a_decision_for_it(tree: Tree, store: Store, verdict: str | None) -> None:
    if verdict:
        decide(store, "fuse", CPU, verdict)
    with pytest.raises(NotDecided, match="no decision says promote or default"):
        plan_promote(compose("fuse"), store, tree, DAY)


def test_promote_makes_the_default_of_one_machine_key(tree: Tree, store: Store) -> None:
    number = decide(store, "fuse", CPU, "promote on this machine key", "3")
    before = snapshot(tree)
    plan = plan_promote(compose("fuse"), store, tree, DAY)
    assert snapshot(tree) == before
    assert [(row.table, row.id) for row in plan.evidence] == [("decision", number), ("comparison", 1), ("fidelity", 1)]
    assert "-2.1 % (-4.0 % to -0.2 %), 32 quads in 16 launches, p Wilcoxon 0.9100" in plan.evidence[1].words
    act(plan, store, tree)
    fuse = tree.levers()["fuse"]
    assert (fuse.default_on(CPU), fuse.default_on(MAC), fuse.default) == ("quantized", "none", "none")
    assert [(entry.day, entry.name, entry.what) for entry in tree.entries()] == [("2026-12-05", "fuse", "promoted")]
    assert "stays: mlx-lm or optiq ships it" in tree.log.read_text()
    assert tree.experiment("fuse").is_file()
    row = store.experiment("fuse")
    assert row is not None
    assert row.state == "measuring"  # two targets have not decided
    assert "-2.1 %" in store.rows(BreadcrumbRow)[0].text


@pytest.mark.parametrize(
    ("override", "says"),
    [("experiment.delta=0.001", "delta 0.001, declared"), ("model=another", "model 'another', declared")],
)
def test_what_was_measured_with_overrides_is_not_promoted(tree: Tree, store: Store, override: str, says: str) -> None:
    decide(store, "fuse", CPU, "promote on this machine key", "3", overrides=(override,))
    with pytest.raises(NotDecided, match=says):
        plan_promote(compose("fuse"), store, tree, DAY)


def test_promote_names_the_machine_where_several_won(tree: Tree, store: Store) -> None:
    for key in (CPU, MAC):
        decide(store, "fuse", key, "promote on this machine key", "3")
    with pytest.raises(errors.InvalidValue, match="--machine"):
        plan_promote(compose("fuse"), store, tree, DAY)
    assert plan_promote(compose("fuse"), store, tree, DAY, MAC).machine_key == MAC
    with pytest.raises(NotDecided, match=f"on {CUDA}"):
        plan_promote(compose("fuse"), store, tree, DAY, CUDA)


def our_loser(tree: Tree) -> ExperimentConf:
    """An experiment whose base is a path of our own: its files must go once it lost everywhere."""
    table = json.loads(tree.table.read_text())
    table["levers"]["recurrence"]["variants"]["plain"]["files"] = ["engine/plain.py"]
    tree.table.write_text(json.dumps(table))
    (tree.root / "engine" / "plain.py").write_text("slow = True\n")
    text = (tree.experiment("fuse").read_text()).replace("lever: [fuse]", "lever: [recurrence]")
    text = text.replace("fuse: none", "recurrence: plain").replace("fuse: quantized", "recurrence: fast")
    text = text.replace("name: fuse", "name: fast").replace("kind: ours", "kind: oracle-owned")
    return write_declaration(tree, "fast", text).experiment


def test_the_losing_path_has_fourteen_days(tree: Tree, store: Store) -> None:
    our_loser(tree)
    conf = compose("fast", folder=tree.experiments)
    for key in (CPU, MAC):
        decide(store, "fast", key, "default on this machine key", "3", tree.experiments)
    assert plan_promote(conf, store, tree, DAY, CPU).steps[0].removes == ""  # CUDA may still need it
    decide(store, "fast", CUDA, "default on this machine key", "3", tree.experiments)
    act(plan_promote(conf, store, tree, DAY, CPU), store, tree)
    assert tree.overdue("2026-12-19") == []
    words = "recurrence=plain lost in fast and was to be removed by 2026-12-19; still there: engine/plain.py"
    assert tree.overdue("2026-12-20") == [words]
    assert words in audit(None, date(2026, 12, 20), folder=tree.experiments)[0]
    (tree.root / "engine" / "plain.py").unlink()
    assert "engine/levers.json" in tree.overdue("2026-12-20")[0]
    table = json.loads(tree.table.read_text())
    del table["levers"]["recurrence"]["variants"]["plain"]
    tree.table.write_text(json.dumps(table))
    assert tree.overdue("2026-12-20") == []
    row = store.experiment("fast")
    assert row is not None
    assert row.state == "promoted"


def test_a_lever_without_a_default_in_the_table_is_not_promoted(tree: Tree, store: Store) -> None:
    decide(store, "blas", CPU, "default on this machine key", "3")
    with pytest.raises(errors.InvalidValue, match="chosen as a process starts"):
        plan_promote(compose("blas"), store, tree, DAY)


def test_delete_needs_a_no_of_every_target(tree: Tree, store: Store) -> None:
    conf = compose("fuse")
    with pytest.raises(NotDecided, match="no decision is recorded"):
        plan_delete(conf, store, tree, DAY)
    decide(store, "fuse", CPU, "no gain on this machine key")
    with pytest.raises(NotDecided, match="darwin-arm64: no decision"):
        plan_delete(conf, store, tree, DAY)
    decide(store, "fuse", MAC, "promote on this machine key", "3")
    with pytest.raises(NotDecided, match=f"it won on {MAC}"):
        plan_delete(conf, store, tree, LATE)


def test_delete_removes_file_and_registration_and_leaves_the_numbers(tree: Tree, store: Store) -> None:
    for key in (CPU, MAC, CUDA):
        decide(store, "fuse", key, "delete: worse" if key == CUDA else "no gain on this machine key")
    before = snapshot(tree)
    plan = plan_delete(compose("fuse"), store, tree, DAY)
    assert snapshot(tree) == before
    act(plan, store, tree)
    assert not tree.experiment("fuse").exists()
    with pytest.raises(errors.InvalidValue, match="fuse='quantized' is not allowed; allowed: none"):
        tree.levers()["fuse"].variant("quantized")
    log = tree.log.read_text()
    for words in ("## 2026-12-05 fuse: deleted", "One product for q, k and v", "-2.1 % (-4.0 %", "mean 1.2e-04 nats"):
        assert words in log
    row = store.experiment("fuse")
    assert row is not None
    assert row.state == "deleted"
    assert store.breadcrumbs() == {"fuse"}
    (tree.root / "engine" / "graph").mkdir()
    (tree.root / "engine" / "graph" / "fused.py").write_text("")
    assert tree.overdue("2026-12-19") == []
    assert "engine/graph/fused.py" in tree.overdue("2026-12-20")[0]
    assert "neither a file nor a breadcrumb" not in str(audit(store, DAY, folder=tree.experiments))


def test_code_of_others_and_code_in_use_stays(tree: Tree, store: Store) -> None:
    for key in (CPU, MAC, CUDA):
        decide(store, "kv8", key, "not default on this machine key")
        decide(store, "fuse", key, "no gain on this machine key")
    plan = plan_delete(compose("kv8"), store, tree, DAY)
    assert plan.steps == ()
    assert "kv=uniform stays registered: mlx-lm or optiq ships it" in plan.words
    edit_default(tree, "quantized")
    assert "it is a default" in str(plan_delete(compose("fuse"), store, tree, DAY).words)
    edit_default(tree, "none")
    text = tree.experiment("fuse").read_text().replace("name: fuse", "name: fuse2")
    write_declaration(tree, "fuse2", text)
    assert "fuse2 uses it too" in str(plan_delete(compose("fuse"), store, tree, DAY).words)


def test_at_its_expiry_an_experiment_ends_and_its_code_stays(tree: Tree, store: Store) -> None:
    decide(store, "fuse", CPU, "no gain on this machine key")
    plan = plan_delete(compose("fuse"), store, tree, LATE)
    assert plan.steps == ()
    assert "not every target said no" in str(plan.words)
    assert "ended by its expiry" in plan.notes[0]
    act(plan, store, tree)
    assert "quantized" in tree.levers()["fuse"].variants
    assert not tree.experiment("fuse").exists()


def test_extend_once_with_a_reason(tree: Tree) -> None:
    conf = compose("fuse", folder=tree.experiments)
    with pytest.raises(errors.InvalidValue, match="--reason"):
        plan_extend(conf, tree, DAY, "  ")
    text, until = plan_extend(conf, tree, DAY, 'the "quiet" machine was away')
    assert until == "2027-01-13"
    assert write_declaration(tree, "fuse", text).experiment.expires_on == until
    again = compose("fuse", folder=tree.experiments)
    assert again.experiment.extension_reason == 'the "quiet" machine was away'
    with pytest.raises(errors.InvalidValue, match="one not yet extended"):
        plan_extend(again, tree, DAY, "once more")
    with pytest.raises(errors.InvalidValue, match="that is past; delete it"):
        plan_extend(compose("kv8", folder=tree.experiments), tree, date(2027, 2, 1), "late")


def test_the_audit_of_a_clone_takes_the_log_for_a_decision(tree: Tree, store: Store) -> None:
    late = date(2027, 1, 31)
    expired = [f"{name} expired" for name in ("compile_step", "fuse", "kv8")]
    assert [problem[: problem.index(" on ")] for problem in audit(None, late, folder=tree.experiments)[0]] == expired
    tree.log.write_text(tree.log_with("2026-12-05", "fuse", "promoted", ["numbers"]))
    assert len(audit(None, late, folder=tree.experiments)[0]) == 2
    decide(store, "kv8", CPU, "screened-in, needs a quiet machine")
    problems = audit(store, late, folder=tree.experiments)[0]
    assert "kv8 expired on 2026-12-29 without a decision" in problems
    assert "compile_step has a file and no row: frontier lab new compile_step enters it" in problems


def edit_default(tree: Tree, value: str) -> None:
    table = tree.read_table()
    set_default(table, "fuse", CPU, value, None)
    tree.table.write_text(table_text(table))


def test_a_wrong_edit_is_no_table(tree: Tree) -> None:
    """Catches a table that is written with a default of no variant."""
    table = tree.read_table()
    set_default(table, "fuse", CPU, "everything", None)
    with pytest.raises(errors.InvalidValue):
        table_text(table)
    table = tree.read_table()
    unregister(table, "fuse", "none", removal_of(LEVERS["fuse"], "none", "2026-12-19", "x"))
    with pytest.raises(errors.InvalidValue):
        table_text(table)


STEPS = {YES: "promoted", NO: "deleted"}


def planned(tree: Tree, store: Store, verdict: str) -> Plan:
    for key in (CPU, MAC, CUDA) if verdict == NO else (CPU,):
        decide(store, "fuse", key, verdict, "3" if verdict == YES else "7")
    return (plan_promote if verdict == YES else plan_delete)(composed("fuse"), store, tree, DAY)


@pytest.mark.parametrize("verdict", STEPS)
@pytest.mark.parametrize("blocked", ["engine/levers.json", pytest.param("reports/log.md", marks=pytest.mark.matrix)])
def test_a_file_that_cannot_be_written_leaves_everything_as_it_was(
    tree: Tree, store: Store, verdict: str, blocked: str
) -> None:
    """Catches rows that are written before it is known whether the files can be."""
    plan = planned(tree, store, verdict)
    beside(tree.root / blocked).mkdir()  # nothing can be written under that name, not even by root
    before = snapshot(tree)
    with pytest.raises(NotWritable, match=f"{blocked} cannot be changed .*; nothing was changed"):
        act(plan, store, tree)
    assert (snapshot(tree), store.breadcrumbs()) == (before, set())
    row = store.experiment("fuse")
    assert row is not None
    assert row.state == "declared"
    beside(tree.root / blocked).rmdir()
    act(plan, store, tree)
    assert [entry.what for entry in tree.entries()] == [STEPS[verdict]]
    assert not list(tree.root.rglob(".*.partial"))


@pytest.mark.parametrize("at", [2, *(pytest.param(at, marks=pytest.mark.matrix) for at in (1, 3))])
def test_a_rename_that_fails_half_way_is_undone(
    tree: Tree, store: Store, monkeypatch: pytest.MonkeyPatch, at: int
) -> None:
    """Catches files of which some are new and some old, and a row of a step that was not done."""
    plan, before, calls = planned(tree, store, NO), snapshot(tree), itertools.count(1)

    def fails(really: Callable[..., None]) -> Callable[..., None]:
        def step(*args: object) -> None:
            if next(calls) == at:
                raise OSError(28, "No space left on device")
            really(*args)

        return step

    with monkeypatch.context() as patch:
        patch.setattr(edits.os, "replace", fails(os.replace))
        patch.setattr(Path, "unlink", fails(Path.unlink))
        with pytest.raises(NotWritable, match="No space left on device"):
            act(plan, store, tree)
    assert {k: v for k, v in snapshot(tree).items() if "partial" not in k} == before
    assert store.breadcrumbs() == set()


def test_a_database_that_fails_takes_the_files_back(tree: Tree, store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """Catches files that stay changed though their rows could not be written."""
    plan, before = planned(tree, store, YES), snapshot(tree)

    def end(_id: int, _state: str, _row: object, then: Callable[[], None]) -> None:
        then()
        assert snapshot(tree) != before
        raise DatabaseLocked("locked")

    monkeypatch.setattr(store, "end_experiment", end)
    with pytest.raises(DatabaseLocked):
        act(plan, store, tree)
    assert snapshot(tree) == before


def test_extend_composes_what_it_would_write(tree: Tree) -> None:
    """Catches a dry run that promises what `--yes` refuses: a date whose line is not where one is looked for."""
    path = tree.experiment("kv8")
    path.write_text(path.read_text().replace('expires_on: "2026-12-29"', '"expires_on": "2026-12-29"'))
    before = path.read_text()
    with pytest.raises(errors.FrontierError):
        plan_extend(compose("kv8", folder=tree.experiments), tree, DAY, "the machine was away")
    assert path.read_text() == before
