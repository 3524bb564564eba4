"""Confirmations: when they may begin, what they refuse, what they make of row 4; planted verdicts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from lab_bench import OURS, TIMED, Lab, edit, make_lab

from engine import machine
from lab import fingerprint
from lab.confirm import NotConfirmable
from lab.measure import group_quads
from lab.record import read_samples
from lab.store import Store
from lab.tables import ComparisonRow, SessionEventRow, SessionRow


@pytest.fixture
def lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Lab:
    return make_lab(tmp_path, monkeypatch)


def events(store: Store, uid: str, name: str) -> list[dict[str, object]]:
    row = store.rows(SessionRow, uid=uid)[0]
    return [e.detail for e in store.rows(SessionEventRow, session_id=row.id, event=name)]


def test_a_confirmation_has_another_prompt_and_makes_the_default(lab: Lab) -> None:
    search = lab.run()
    lab.run(profile="quick")  # takes nothing back
    result = lab.confirm()
    assert (result.purpose, result.row, result.verdict) == (
        "confirm", "3", "default on this machine key (counted)",
    )  # fmt: skip
    assert any(reason.startswith("published estimate: +257.") for reason in result.reasons)
    with lab.store() as store:
        first, _, second = store.sessions("kv8")
        assert (first.purpose, second.purpose) == ("search", "confirm")
        assert first.workload_id != second.workload_id
        assert (first.ab_seed, first.aa_seed) != (second.ab_seed, second.aa_seed)
        assert events(store, second.uid, "confirms") == [
            {"session": search.session, "decision": store.decisions("kv8")[0].id, "prompt": 1}
        ]
        assert len(group_quads(read_samples(store, second.id), "ab")) == 16
        assert {c.part for c in store.rows(ComparisonRow, session_id=second.id)} == {"aa", "ab"}
    with pytest.raises(NotConfirmable, match="nothing to confirm, its newest decision is row 3"):
        lab.confirm(later=90)


@pytest.mark.matrix
def test_a_timed_win_on_a_shared_machine_is_screened_or_promoted(lab: Lab) -> None:
    lab.world.speed["kv8"] = 13.0
    assert lab.run("kv8", *TIMED, kl=0.0).verdict == "confirm"
    identical = lab.confirm()
    assert (identical.row, identical.verdict) == ("3", "promote on this machine key")
    assert lab.run("kv8", *TIMED, kl=1e-5).verdict == "confirm"
    close = lab.confirm(later=90)
    assert (close.row, close.verdict) == ("3", "screened-in, needs a quiet machine")


def test_a_gain_that_does_not_come_again_is_row_7(lab: Lab) -> None:
    lab.world.speed["kv8"] = 13.0
    assert lab.run("kv8", *TIMED).row == "4"
    lab.world.speed["kv8"] = 10.0
    result = lab.confirm()
    assert (result.row, result.verdict) == ("7", "no gain on this machine key")
    assert "confirmed: failed" in result.reasons


@pytest.mark.matrix
def test_a_guardrail_that_breaks_in_the_confirmation_refutes_it(lab: Lab) -> None:
    lab.run()
    lab.world.speed["kv8"] = 7.0
    result = lab.confirm()
    assert (result.row, result.verdict) == ("7", "not default on this machine key (counted)")
    assert any("worse: decode_tok_s" in reason for reason in result.reasons)


@pytest.mark.matrix
def test_a_confirmation_that_says_nothing_leaves_row_4(lab: Lab) -> None:
    lab.world.speed["kv8"] = 13.0
    lab.run("kv8", *TIMED)
    lab.world.noise = 0.4
    for again in range(3):
        result = lab.confirm(later=31 * (again + 1))
        last = again == 2
        assert (result.row, result.verdict) == (("7", "no gain on this machine key") if last else ("4", "confirm"))
    assert sum("the cell is unstable" in reason for reason in result.reasons) == 3


def test_a_confirmation_too_early_is_refused_with_its_moment(lab: Lab) -> None:
    lab.run()
    with pytest.raises(NotConfirmable, match=r"too early.* may begin at 20\d\d-.* \(30 minutes later\)$"):
        lab.confirm(later=29)
    assert len(list((lab.path / "outputs" / "kv8").iterdir())) == 1


@pytest.mark.matrix
def test_a_quiet_machine_waits_twelve_hours_or_for_a_boot(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    lab.run("kv8", "machine=quiet", "profile.aa_quads=16")
    with pytest.raises(NotConfirmable, match=r"720 minutes later\), or on another boot"):
        lab.confirm(later=60)
    taken = fingerprint.take()
    monkeypatch.setattr(fingerprint, "take", lambda: replace(taken, boot="another"))
    assert lab.confirm(later=0).row == "3"


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda p: replace(p, code=replace(p.code, arms_sha256="0" * 64)), "source of the arms"),
        (lambda p: replace(p, lock_sha256="1" * 64), "lock: .* and 111111111111"),
        (lambda p: replace(p, packages=dict(p.packages) | {"mlx": "0"}), "package mlx: '.*' and '0'"),
        (lambda p: replace(p, variables=dict(p.variables) | {"OMP_NUM_THREADS": "7"}), "OMP_NUM_THREADS: None and '7'"),
    ],
)
def test_a_confirmation_of_something_else_is_refused(
    lab: Lab, monkeypatch: pytest.MonkeyPatch, change: Callable[[object], object], words: str
) -> None:
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    lab.run(profile="quick", status="PASS")
    make_pending(lab)
    taken = fingerprint.take()
    monkeypatch.setattr(fingerprint, "take", lambda: change(taken))
    with pytest.raises(NotConfirmable, match=words):
        lab.confirm()


@pytest.mark.matrix
def test_a_commit_that_leaves_the_arms_alone_does_not_stand_in_the_way(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    lab.run()
    taken = fingerprint.take()
    monkeypatch.setattr(fingerprint, "take", lambda: replace(taken, code=replace(taken.code, git_sha="f" * 40)))
    assert lab.confirm().row == "3"


def test_other_model_bytes_and_another_machine_key_are_refused(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    lab.run(profile="quick")
    make_pending(lab)
    (lab.path / "model" / "model.safetensors").write_bytes(b"other weights")
    with pytest.raises(NotConfirmable, match=r"base bytes: '\w+' and '\w+'; candidate bytes"):
        lab.confirm()
    taken = fingerprint.take()
    monkeypatch.setattr(fingerprint, "take", lambda: replace(taken, machine_key="linux-x86_64-cpu-other"))
    with pytest.raises(NotConfirmable, match="no decision on machine key linux-x86_64-cpu-other"):
        lab.confirm()


def test_an_experiment_that_was_edited_since_is_not_confirmed(lab: Lab) -> None:
    """Catches half an hour spent on a confirmation that nothing would count."""
    lab.run(profile="quick")
    make_pending(lab)
    lab.declares = (*lab.declares, "experiment.delta=0.3")
    with pytest.raises(NotConfirmable, match=r"measured another experiment: delta 0\.5, declared 0\.3"):
        lab.confirm()


def test_nothing_to_confirm(lab: Lab) -> None:
    with pytest.raises(NotConfirmable, match="has no decision on machine key"):
        lab.confirm()
    lab.run(profile="quick")
    with pytest.raises(NotConfirmable, match="its newest decision is row 8: undecided: quick profile"):
        lab.confirm()


def make_pending(lab: Lab) -> None:
    """Have the newest decision ask for a confirmation, where a quick run decided nothing."""
    facts = "facts = json_set(facts, '$.quick', json('false'))"
    edit(lab, "decision", f"UPDATE decision SET rule_row = '4', verdict = 'confirm (counted)', {facts}")


def test_planted_verdicts(lab: Lab) -> None:
    """A no-op, a slowdown of 15 % and a broken KL, through the whole of a run, on the only machine that is asked."""
    words = (*OURS, "experiment.primary=decode_tok_s", f"experiment.targets=[{machine().key}]")
    noop = lab.run("kv8", *words)
    assert (noop.row, noop.verdict) == ("5", "delete: inside +-delta")
    lab.world.speed["kv8"] = 10.0 * 0.85
    slow = lab.run("kv8", *words)
    assert (slow.row, slow.verdict) == ("7", "delete: worse")
    broken = lab.run("kv8", *words, status="FAIL")
    assert (broken.row, broken.verdict) == ("1", "delete: gate (one repair before expiry)")
