"""Deciding from the database alone, and judging old decisions again from their raw rows."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict
from datetime import UTC, date, datetime
from pathlib import Path

import pytest
from lab_bench import DAY, Lab, edit, make_lab

from lab import cli, deciding
from lab.deciding import NothingToDecide, decide_again, replay
from lab.evidence import confirmations, searches
from lab.judging import Moment, judge_search
from lab.tables import ComparisonRow
from lab.verdict import Judged

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Lab:
    return make_lab(tmp_path, monkeypatch)


def test_decide_reads_the_database_alone(lab: Lab) -> None:
    with lab.store() as store, pytest.raises(NothingToDecide):
        decide_again(store, "kv8", DAY)
    lab.run()
    taken = lab.world.samples
    with lab.store() as store:
        ((found,), left_out) = decide_again(store, "kv8", DAY)
        assert left_out == ()
        assert found.judged.decision.verdict == "confirm (counted)"
        assert len(store.decisions("kv8")) == 2
        assert asdict(found.judged.facts) == store.decisions("kv8")[0].facts
        with pytest.raises(NothingToDecide, match="on nowhere; measured on"):
            decide_again(store, "kv8", DAY, "nowhere")
    lab.confirm()
    with lab.store() as store:
        ((found,), _) = decide_again(store, "kv8", date(2027, 2, 1))
        assert found.judged.decision.verdict == "default on this machine key (counted)"
        assert found.judged.facts.exhausted
    assert lab.world.samples > taken


@pytest.mark.matrix
def test_replay_is_the_same_byte_for_byte(lab: Lab) -> None:
    lab.run()
    lab.run("kv8", status="FAIL")
    lab.run("kv8")
    lab.confirm()
    with lab.store() as store:
        ids = [row.id for row in store.rows(ComparisonRow)]
        found = replay(store, "kv8")
        assert [r.state for r in found] == ["same"] * 4
        assert [r.again for r in found] == [r.stored for r in found]
        assert [row.id for row in store.rows(ComparisonRow)] == ids  # the evidence still points at them


EDIT = "UPDATE sample SET kv_bytes = 10 * kv_bytes WHERE id = (SELECT max(id) FROM sample WHERE role = 'candidate')"


def catches_an_edit(lab: Lab, judge: Callable[..., Judged]) -> bool:
    """Whether a replay that judges by `judge` notices that one sample is not what was measured."""
    with lab.store() as store:
        (found,) = replay(store, "kv8", judge)
    return found.fault


def test_an_edited_sample_changes_the_verdict_and_a_replay_that_reads_it_does_not_see(lab: Lab) -> None:
    lab.run()
    assert not catches_an_edit(lab, judge_search)
    with lab.store() as store:
        search = searches(store, "kv8")[0]
        stored = judge_search(store, "kv8", search, Moment(DAY, "2026-12-29"))
        assert confirmations(store, "kv8", search) == []
    edit(lab, "sample", EDIT)
    assert catches_an_edit(lab, judge_search)
    assert not catches_an_edit(lab, lambda *_: stored)  # the mutant: it never looks at the samples
    with lab.store() as store:
        (found,) = replay(store, "kv8")
        assert found.stored_verdict == "row 4: confirm (counted)"
        assert found.verdict == "row 2: rerun"


def test_the_commands(lab: Lab, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("FRONTIER_DB", lab.url)
    monkeypatch.setenv("FRONTIER_BLAS", "bundled")
    monkeypatch.chdir(ROOT)
    lab.run()
    assert cli.main(["lab", "decide", "kv8", "--as-of", str(datetime.now(UTC).date()), "--json"]) == 0
    (decided,) = last(capsys.readouterr().out)["decisions"]
    assert (decided["row"], decided["verdict"]) == ("4", "confirm (counted)")
    assert cli.main(["lab", "replay", "kv8"]) == 0
    assert "replayed 2 decisions of kv8: 2 same, 0 other, 0 not readable" in capsys.readouterr().out
    edit(lab, "sample", EDIT)
    assert cli.main(["lab", "replay", "kv8", "--json"]) == 1
    found = last(capsys.readouterr().out)["decisions"]
    assert [row["fault"] for row in found] == [True, True]
    assert cli.main(["lab", "replay", "kv8"]) == 1
    assert "stored row 4: confirm (counted); from the rows row 2: rerun" in capsys.readouterr().out


def last(text: str) -> dict[str, list[dict[str, object]]]:
    document: dict[str, list[dict[str, object]]] = json.loads(text.strip().splitlines()[-1])
    return document


def test_another_analysis_prints_both_and_is_no_fault(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    lab.run(profile="quick")
    edit(lab, "decision", "UPDATE decision SET verdict = 'something else', analysis_sha256 = 'old'")
    with lab.store() as store:
        (found,) = replay(store, "kv8")
    assert (found.state, found.fault) == ("other", False)
    assert found.other[0].startswith("analysis old and ")
    assert (found.stored_verdict, found.verdict) == ("row 8: something else", "row 8: undecided: quick profile")
    monkeypatch.setattr(deciding, "ROOT", lab.path)  # no lock here
    with lab.store() as store:
        (found,) = replay(store, "kv8")
    assert found.other[1].endswith("and none")


def test_an_older_session_is_not_readable_and_said_so(lab: Lab) -> None:
    lab.run(profile="quick")
    edit(lab, "decision", "UPDATE decision SET evidence = '[]'")
    with lab.store() as store:
        (found,) = replay(store, "kv8")
    assert (found.state, found.fault) == ("not readable", False)
    assert "older version" in found.why
