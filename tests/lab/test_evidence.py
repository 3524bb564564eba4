"""What counts as evidence: runs as declared, of a profile that decides, on every machine key, up to the day."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from lab_bench import DAY, SMALL, Lab, make_lab
from life_fakes import CPU, CUDA, MAC, composed, decide, row_of, source_tree

from engine import errors
from lab import cli
from lab.config import compose
from lab.confirm import NotConfirmable
from lab.deciding import NothingToDecide, check_day, decide_again
from lab.declared import choices, measured_otherwise, overridden
from lab.evidence import searches, standing
from lab.lifecycle import NotDecided, plan_delete, plan_promote
from lab.record import read_samples
from lab.resume import SessionsSpent
from lab.store import Store
from lab.tables import DecisionRow
from lab.targets import all_say_no, all_say_yes, latest, others_say_no
from lab.tree import Tree
from oracles.contract import OracleCrashed

OTHER_CPU = "linux-x86_64-cpu-openblas0.3.21-zen"
NO, YES = "no gain on this machine key", "promote on this machine key"
ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Lab:
    return make_lab(tmp_path, monkeypatch)


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    return source_tree(tmp_path / "tree", "fuse", "kv8")


def opened(tmp_path: Path) -> Store:
    return Store.open(str(tmp_path / "lab.sqlite"))


@pytest.mark.parametrize(
    ("override", "says"),
    [
        ("experiment.candidate.kv=kv4", "experiment.candidate.kv 'kv4', declared 'kv8:g64:start=0'"),
        ("model=another", "model 'another', declared 'smollm2-135m-instruct-fp32'"),
        ("thresholds.max_sessions=99", "thresholds.max_sessions 99, declared 3"),
        ("profile.cap_minutes=1", "profile.cap_minutes 1.0, declared 20.0"),
        ("experiment.delta=0.5", ""),
        ("machine=quiet", ""),
    ],
)
def test_what_is_not_as_declared_is_named(override: str, says: str) -> None:
    """Catches an override that changes a number and passes for the declaration, and one that changes none and does
    not."""
    found = overridden(compose("kv8", [override]), composed("kv8", tuple(choices([override]))))
    assert found == ([says] if says else [])


def test_an_overridden_run_explores_and_nothing_counts_it(
    lab: Lab, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Catches an exploration that writes a decision, that a decision, a confirmation or the audit finds, or that moves
    the experiment's state."""
    result = lab.run(profile="quick", overrides=("experiment.delta=0.2",))
    assert result.verdict == "exploratory: undecided: quick profile"
    assert result.otherwise == ("experiment.delta 0.2, declared 0.5",)
    with lab.store() as store:
        (session,) = store.sessions("kv8")
        assert (session.purpose, len(read_samples(store, session.id))) == ("explore", result.samples)
        assert (store.decisions("kv8"), searches(store, "kv8")) == ([], [])
        row = store.experiment("kv8")
        assert row is not None
        assert row.state == "declared"
        with pytest.raises(NothingToDecide, match=r"is exploratory: experiment\.delta 0\.2, declared 0\.5"):
            decide_again(store, "kv8", DAY)
    with pytest.raises(NotConfirmable, match="has no decision"):
        lab.confirm()
    monkeypatch.setenv("FRONTIER_DB", lab.url)
    monkeypatch.chdir(ROOT)
    assert cli.main(["lab", "show", "kv8", "--out", str(lab.path / "figures")]) == 0
    said = capsys.readouterr().out
    assert "exploratory, counts for nothing: experiment.delta 0.2, declared 0.5" in said
    assert "it would be row 8: undecided: quick profile" in said


@pytest.mark.matrix
def test_an_exploration_that_died_goes_on_as_one(lab: Lab) -> None:
    """Catches a resumed session that forgets how it was begun and decides."""
    lab.world.crash_at = 9
    with pytest.raises(OracleCrashed):
        lab.run(profile="quick", overrides=("experiment.delta=0.2",))
    lab.world.crash_at = -1
    assert lab.resume().verdict == "exploratory: undecided: quick profile"
    with lab.store() as store:
        assert store.decisions("kv8") == []


def test_what_was_measured_otherwise_is_not_deleted_by_either(tmp_path: Path, tree: Tree) -> None:
    """The decisions of a database in which overridden runs still wrote some: catches a delete, or another target's no,
    that goes by them."""
    with opened(tmp_path) as store:
        for key in (CPU, MAC, CUDA):
            decide(store, "fuse", key, NO, overrides=("experiment.delta=0.001",))
        with pytest.raises(NotDecided, match=r"no decision is recorded that counts.*delta 0\.001, declared"):
            plan_delete(composed("fuse"), store, tree, DAY)
        for key in (CPU, MAC):
            decide(store, "fuse", key, NO)
        with pytest.raises(NotDecided, match="linux-x86_64-cuda: no decision; does not count: decision 1 on"):
            plan_delete(composed("fuse"), store, tree, DAY)
        assert [row.machine_key for row in standing(store, composed("fuse")).counts] == [CPU, MAC]


def test_an_edit_of_the_file_since_is_seen(tree: Tree) -> None:
    text = tree.experiment("kv8").read_text()
    was = compose("kv8", folder=tree.experiments)
    tree.experiment("kv8").write_text(text.replace("delta: 0.5", "delta: 0.1"))
    assert measured_otherwise(was, compose("kv8", folder=tree.experiments)) == ["delta 0.5, declared 0.1"]


def test_a_quick_gate_takes_nothing_back_and_a_full_one_blocks(tmp_path: Path, tree: Tree) -> None:
    """Catches a quick failure that hides a full run's win (also one that an older version wrote down as a verdict), and
    a promotion on one machine while the gate fails on another."""
    with opened(tmp_path) as store:
        decide(store, "fuse", CPU, YES, "3")
        decide(store, "fuse", CPU, NO, "1", facts={"quick": True})
        assert latest(store.decisions("fuse"))[CPU].verdict == YES
        assert plan_promote(composed("fuse"), store, tree, DAY).machine_key == CPU
        number = decide(store, "fuse", MAC, NO, "1", facts={"quick": False})
        with pytest.raises(NotDecided, match=rf"its gate fails on {MAC} \(decision {number}\)"):
            plan_promote(composed("fuse"), store, tree, DAY)
        decide(store, "fuse", MAC, "undecided: quick profile", "1b", facts={"quick": True})
        with pytest.raises(NotDecided, match="its gate fails"):
            plan_promote(composed("fuse"), store, tree, DAY)
        decide(store, "fuse", MAC, NO, "5")
        assert plan_promote(composed("fuse"), store, tree, DAY).machine_key == CPU


def said(verdicts: Mapping[str, str]) -> list[DecisionRow]:
    """Decisions on these machine keys, in this order."""
    rows = [row_of(DecisionRow, machine_key=key, verdict=verdict, facts={}) for key, verdict in verdicts.items()]
    return [row for row in rows if isinstance(row, DecisionRow)]


@pytest.mark.parametrize(
    ("verdicts", "all_no", "others_no", "all_yes"),
    [
        ({}, False, False, False),
        ({MAC: NO, CUDA: NO}, False, True, False),  # the key that is judged now needs no earlier word
        ({MAC: NO, CUDA: NO, OTHER_CPU: YES}, False, False, False),
        ({MAC: NO, CUDA: NO, OTHER_CPU: YES, CPU: NO}, False, False, False),  # the target's newest says no, not each
        ({MAC: NO, CUDA: NO, OTHER_CPU: NO, CPU: YES}, False, True, False),
        ({MAC: NO, CUDA: NO, OTHER_CPU: NO, CPU: NO}, True, True, False),
        ({MAC: YES, CUDA: YES, OTHER_CPU: YES, CPU: NO}, False, False, False),
        ({MAC: YES, CUDA: YES, OTHER_CPU: YES, CPU: YES}, False, False, True),
    ],
)
def test_one_rule_of_what_keys_and_targets_said(
    verdicts: dict[str, str], all_no: bool, others_no: bool, all_yes: bool
) -> None:
    """Catches a target that is judged by one of its keys alone."""
    targets, rows = ("linux-x86_64-cpu", "darwin-arm64", "linux-x86_64-cuda"), said(verdicts)
    assert all_say_no(targets, rows) is all_no
    assert others_say_no(targets, rows, CPU) is others_no
    assert all_say_yes(targets, rows) is all_yes


def test_delete_asks_every_key_of_a_target(tmp_path: Path, tree: Tree) -> None:
    """Catches a delete that looks at the newest key of a target, and one that overlooks a win outside of them."""
    conf = composed("fuse")
    with opened(tmp_path) as store:
        decide(store, "fuse", OTHER_CPU, "confirm", "4")
        for key in (CPU, MAC, CUDA):
            decide(store, "fuse", key, NO)
        with pytest.raises(NotDecided, match=f"{OTHER_CPU}: confirm"):
            plan_delete(conf, store, tree, DAY)
        decide(store, "fuse", OTHER_CPU, NO)
        assert [row.table for row in plan_delete(conf, store, tree, DAY).evidence].count("decision") == 4
        decide(store, "fuse", "windows-x86_64-cpu", YES, "3")
        with pytest.raises(NotDecided, match="it won on windows-x86_64-cpu"):
            plan_delete(conf, store, tree, DAY)


@pytest.mark.matrix
def test_every_session_that_was_begun_is_a_try(lab: Lab) -> None:
    """Catches tries that end before they are measured, at the gate or in the pilot, and do not count."""

    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    around = lab.around()
    lab.declares = SMALL
    with pytest.raises(KeyboardInterrupt):
        run_with(lab, around | {"gate": stop})
    for _ in range(2):
        lab.world.crash_at = lab.world.samples + 3
        with pytest.raises(OracleCrashed):
            lab.run()
    lab.world.crash_at = -1
    with pytest.raises(SessionsSpent, match=r"has had its 3 sessions.*did not end: .*frontier lab resume kv8 goes on"):
        lab.run()
    lab.run(profile="quick")
    assert lab.resume().row == "4"


def run_with(lab: Lab, around: dict[str, object]) -> None:
    from lab.run import run_experiment

    run_experiment("kv8", **around)


@pytest.mark.matrix
def test_a_stopped_confirmation_is_a_try(lab: Lab) -> None:
    """Catches confirmations that are begun until one of them wins."""
    lab.run()
    for again in range(3):
        lab.world.crash_at = lab.world.samples + 3
        with pytest.raises(OracleCrashed):
            lab.confirm(later=31 * (again + 1))
    lab.world.crash_at = -1
    with pytest.raises(NotConfirmable, match="its 3 confirmations were begun"):
        lab.confirm(later=130)
    with lab.store() as store:
        ((found,), _) = decide_again(store, "kv8", DAY)
        assert (found.judged.decision.row, found.judged.facts.confirmed) == ("7", "failed")


def test_a_day_of_decision_is_bounded(lab: Lab) -> None:
    """Catches a decision as of a day that has not come, and one before what was measured."""
    lab.run(profile="quick")
    today = datetime.now(UTC).date()
    with lab.store() as store:
        check_day(store, "kv8", today, today)
        with pytest.raises(errors.InvalidValue, match=f"{today} at the latest"):
            check_day(store, "kv8", today + timedelta(days=1), today)
        with pytest.raises(errors.InvalidValue, match=f"{today} at the earliest: session .* was measured then"):
            check_day(store, "kv8", today - timedelta(days=1), today)


@pytest.mark.matrix
def test_decide_says_what_it_left_out_and_refuses_a_day(
    lab: Lab, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Catches a session that is left out in silence: a quick one, one that did not end, an exploration."""
    monkeypatch.setenv("FRONTIER_DB", lab.url)
    monkeypatch.chdir(ROOT)
    quick = lab.run(profile="quick")
    explored = lab.run(profile="quick", overrides=("experiment.delta=0.2",))
    lab.world.crash_at = lab.world.samples + 3
    with pytest.raises(OracleCrashed):
        lab.run(profile="quick")
    again = lab.run(profile="quick")
    today = datetime.now(UTC).date()
    assert cli.main(["lab", "decide", "kv8", "--as-of", str(today + timedelta(days=1))]) == 2
    assert f"{today} at the latest" in capsys.readouterr().err
    assert cli.main(["lab", "decide", "kv8", "--as-of", str(today)]) == 0
    said = capsys.readouterr().out
    assert f"left out: session {quick.session} is older; {again.session} is judged" in said
    assert f"left out: session {explored.session} is exploratory: experiment.delta 0.2, declared 0.5" in said
    assert "was not measured to its end (failed)" in said
