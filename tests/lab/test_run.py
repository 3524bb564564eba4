"""A whole experiment on invented workers: what is recorded, what it says, and what a failure leaves behind."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from datetime import date, datetime, tzinfo
from pathlib import Path

import pytest
from lab_bench import DAY, SMALL, Lab, make_lab

from engine import errors
from lab import audit, fingerprint, judge, run, stats
from lab.config import LabConf, compose
from lab.declare import enter_all
from lab.forecast import fit
from lab.measure import LeverNotApplied, Sample, group_quads
from lab.record import read_samples
from lab.store import Store
from lab.tables import ComparisonRow, DecisionRow, ExperimentRow, FidelityRow, SessionEventRow
from oracles.contract import OracleCrashed, StackConfig


@pytest.fixture
def lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Lab:
    return make_lab(tmp_path, monkeypatch)


def test_quick_decides_nothing_and_says_so(lab: Lab) -> None:
    result = lab.run(profile="quick")
    assert result.verdict == "undecided: quick profile"
    primary = next(c for c in result.comparisons if c.use == "primary")
    assert (primary.metric, primary.state) == ("kv_bytes", "win")
    assert {c.state for c in result.comparisons if c.metric == "decode_tok_s"} == {"unknown", "not judged"}
    assert any(line.startswith("expected: ") for line in lab.said)
    order = [i for i, line in enumerate(lab.said) if line.startswith(("expected", "A/A: ", "A/B: ", "KL gate"))]
    assert order == sorted(order)
    assert len(order) == 4
    json.dumps(result.as_dict(), allow_nan=False)


def test_quick_decides_nothing_by_its_gate_either(lab: Lab) -> None:
    """Catches a quick gate that decides, and so takes back what a full run found."""
    result = lab.run(profile="quick", status="FAIL")
    assert (result.row, result.verdict) == ("1", "undecided: quick profile")
    assert "gate: fail" in result.reasons


def test_a_win_asks_for_a_confirmation(lab: Lab) -> None:
    result = lab.run()
    assert (result.row, result.verdict) == ("4", "confirm (counted)")
    assert "cell: stable" in result.reasons
    assert "steady after 12 samples" in lab.said
    states = {c.metric: c.state for c in result.comparisons if c.use == "guardrail"}
    assert states == {"decode_tok_s": "holds", "prefill_tok_s": "holds", "ttft_ms": "holds", "peak_bytes": "holds"}
    assert any("every guardrail is decided at 16 quads" in line for line in lab.said)


def test_a_slower_candidate_breaks_its_guardrail(lab: Lab) -> None:
    lab.world.speed["kv8"] = 7.0
    result = lab.run()
    assert (result.row, result.verdict) == ("6", "not default on this machine key (counted)")
    assert {c.metric: c.state for c in result.comparisons if c.use == "guardrail"}["decode_tok_s"] == "worse"


def test_an_undecided_gate_is_row_1b(lab: Lab) -> None:
    assert (lab.run(status="UNDECIDED").row, lab.run(status="UNDECIDED").verdict) == ("1b", "undecided: gate")


TIMED = ("experiment.primary=decode_tok_s", "experiment.guardrails=[prefill_tok_s]", "experiment.delta=null")


def test_a_timed_primary_wins_at_the_first_look(lab: Lab) -> None:
    lab.world.speed["kv8"] = 13.0
    result = lab.run("kv8", *TIMED)
    primary = next(c for c in result.comparisons if c.use == "primary")
    assert primary.look is not None
    assert (result.row, primary.state, primary.look.quads, primary.look.launches) == ("4", "win", 16, 8)
    assert primary.look.p_wilcoxon == 1 / 256
    assert any("win at 16 quads" in line for line in lab.said)


def test_a_timed_primary_stops_for_futility(lab: Lab) -> None:
    result = lab.run("kv8", *TIMED)
    assert any("futility at 16 quads" in line for line in lab.said)
    assert result.row == "5"  # inside +-10 %


def test_a_slow_machine_is_capped_and_reads_time(lab: Lab) -> None:
    lab.world.speed["kv8"] = 13.0
    result = lab.run("kv8", *TIMED, "profile.cap_minutes=2")  # four launches of ten samples of 3 s
    primary = next(c for c in result.comparisons if c.use == "primary")
    assert primary.look is not None
    assert (primary.look.quads, primary.state) == (8, "open")
    assert (result.row, result.verdict) == ("8", "undecided: time")


def test_an_a_a_that_differs_is_row_2(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (judge, stats):
        monkeypatch.setattr(module, "wilcoxon_two_sided", lambda _values: 0.01)
    lab.world.speed["kv8"] = 13.0
    result = lab.run("kv8", *TIMED)
    assert (result.row, result.verdict) == ("2", "rerun")
    assert any("A/A failed" in reason for reason in result.reasons)
    assert any("A/A differs: two-sided p 0.010" in reason for reason in result.reasons)


def test_a_guardrail_whose_a_a_differs_neither_holds_nor_breaks(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (judge, stats):
        monkeypatch.setattr(module, "wilcoxon_two_sided", lambda _values: 0.01)
    lab.world.speed["kv8"] = 7.0
    result = lab.run("kv8", "experiment.guardrails=[decode_tok_s]")
    assert {c.metric: c.state for c in result.comparisons if c.use == "guardrail"} == {"decode_tok_s": "unknown"}
    assert (result.row, result.verdict) == ("8", "undecided")


def test_a_budget_cuts_the_a_a_then_the_kl_text_and_says_so(lab: Lab) -> None:
    conf = compose("kv8", ["profile=quick"])
    result = lab.run(profile="quick")  # 3 s a sample: 20 samples, 3 launches and the KL text take more than 100 s
    assert "A/A cut from 2 quads to 1" in result.notes[0]
    with Store.open(lab.url) as store:
        samples = read_samples(store, store.sessions("kv8")[0].id)
    assert [sum(s.part == part and not s.warm_up for s in samples) for part in ("aa", "ab")] == [4, 8]
    pilot = next(s for s in samples if s.part == "pilot")
    assert fit(conf, replace(pilot, t1=pilot.t0 + 0.5, prefill_tok_s=1e4)) == ()
    assert (conf.profile.aa_quads, conf.profile.kl[0].sequences, conf.profile.kl[0].length) == (2, 16, 128)
    slow = replace(pilot, t1=pilot.t0 + 30, prefill_tok_s=1.0)
    assert "nothing else is cut" in fit(conf, slow)[-1]
    assert (conf.profile.aa_quads, conf.profile.kl[0].sequences, conf.profile.kl[0].length) == (1, 16, 48)
    assert conf.quads == 2


def test_everything_is_in_the_database_and_replays(lab: Lab) -> None:
    result = lab.run()
    with Store.open(lab.url) as store:
        session = store.sessions("kv8")[0]
        assert store.outcome(session.id) == "finished"
        samples = read_samples(store, session.id)
        assert len(samples) == result.samples == lab.world.samples
        assert {s.part for s in samples} == {"pilot", "aa", "ab"}
        assert all(s.lever == "native" for s in samples if s.part != "ab" or s.role == "base")
        rows = store.rows(ComparisonRow, session_id=session.id)
        assert len(rows) == len(result.comparisons)
        assert {len(row.analysis_sha256) for row in rows} == {64}
        decision = store.rows(DecisionRow)[0]
        assert (decision.rule_row, decision.verdict, decision.as_of) == (result.row, result.verdict, "2026-12-01")
        evidence = {"comparison": [r.id for r in rows], "fidelity": [store.rows(FidelityRow)[0].id]}
        evidence |= {"sessions": [session.uid], "expires_on": "2026-12-29"}
        assert decision.evidence == [evidence]
        arms = {arm.id: arm.role for arm in store.arms(session.experiment_id)}
        assert sorted(arms.values()) == ["base", "candidate"]
    # A replay from the raw samples gives the stored numbers; edited samples give another state.
    conf = compose("kv8", ["profile=full", *SMALL])
    assert replayed(conf, samples) == next(c for c in result.comparisons if c.use == "primary")
    edited = [replace(s, kv_bytes=10 * s.kv_bytes) if s.lever != "native" else s for s in samples]
    assert replayed(conf, edited).state == "loss"


def replayed(conf: LabConf, samples: Sequence[Sample]) -> judge.Comparison:
    return judge.compare_primary(conf, group_quads(samples, "ab"), time_capped=False)


def test_runs_never_share_a_folder(lab: Lab) -> None:
    first, second = lab.run(profile="quick"), lab.run(profile="quick")
    assert first.folder != second.folder
    for result in (first, second):
        assert {p.name for p in result.folder.iterdir()} == {"config.yaml", "result.json"}
        assert json.loads((result.folder / "result.json").read_text())["session"] == result.session


def test_a_folder_that_exists_is_never_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run.secrets, "token_hex", lambda _n: "same")

    class Frozen(datetime):
        @classmethod
        def now(cls, tz: tzinfo | None = None) -> Frozen:
            return cls(2026, 12, 1, tzinfo=tz)

    monkeypatch.setattr(run, "datetime", Frozen)
    run.new_folder(tmp_path, "kv8")
    with pytest.raises(FileExistsError):
        run.new_folder(tmp_path, "kv8")


def test_a_crash_is_recorded_at_once_and_is_no_verdict(lab: Lab) -> None:
    lab.world.crash_at = 9
    with pytest.raises(OracleCrashed):
        lab.run(profile="quick")
    with Store.open(lab.url) as store:
        session = store.sessions("kv8")[0]
        assert store.outcome(session.id) == "failed"
        failed = store.rows(SessionEventRow, session_id=session.id, event="failed")[0]
        assert failed.detail["error"] == "OracleCrashed"
        assert len(store.samples(session.id)) == 8
        assert store.decisions("kv8") == []
    assert lab.world.open == 0


def test_a_lever_that_is_not_on_is_a_failed_run(lab: Lab) -> None:
    lab.world.off = {"kv8"}
    with pytest.raises(LeverNotApplied, match="lever not applied"):
        lab.run(profile="quick")
    with Store.open(lab.url) as store:
        assert store.outcome(store.sessions("kv8")[0].id) == "failed"
        assert store.decisions("kv8") == []


def test_workers_on_another_machine_key_are_not_paired(lab: Lab) -> None:
    lab.world.key = "linux-x86_64-cpu-other"
    with pytest.raises(fingerprint.NotPairable, match="linux-x86_64-cpu-other"):
        lab.run(profile="quick")


def test_arms_pair_only_across_the_declared_lever() -> None:
    def arm(key: str = "m", mlx: str = "1", **config: str) -> fingerprint.ArmPrint:
        return fingerprint.ArmPrint(StackConfig(**({"stack": "engine", "model": "x"} | config)), key, {"mlx": mlx})

    fingerprint.require_pairable(arm(), arm(kv="kv8"), ["kv"])
    fingerprint.require_pairable(arm(), fingerprint.ArmPrint(arm(kv="kv8").config, "m", {"mlx-lm": "2"}), ["kv"])
    for candidate, lever, words in (
        (arm(kv="kv8"), [], "kv"),
        (arm(kv="kv8", blas="openblas"), ["kv"], "blas"),
        (arm(kv="kv8", key="m2"), ["kv"], "machine"),
        (arm(kv="kv8", mlx="2"), ["kv"], "mlx"),
    ):
        with pytest.raises(fingerprint.NotPairable, match=words):
            fingerprint.require_pairable(arm(), candidate, lever)


def test_bad_input_leaves_nothing_behind(lab: Lab) -> None:
    for words in (("experiment.detla=1",), ("profile.max_tokens=1",)):
        with pytest.raises(errors.FrontierError):
            lab.run("kv8", *words)
    with pytest.raises(errors.UnknownField):
        lab.run("kv9")
    assert not (lab.path / "outputs").exists()
    assert not Path(lab.url).exists()


def test_audit(lab: Lab) -> None:
    assert audit.audit(None, date(2026, 12, 29))[0] == []
    assert "kv8 expired on 2026-12-29 without a decision" in audit.audit(None, date(2026, 12, 30))[0]
    lab.run()
    lab.run("kv4", status="FAIL")
    with Store.open(lab.url) as store:
        assert "fuse has a file and no row: frontier lab new fuse enters it" in audit.audit(store, DAY)[0]
        enter_all(store)
        problems, _ = audit.audit(store, date(2026, 12, 30))
        assert problems == ["kv8 expired on 2026-12-29 without a decision"]  # undecided is none; kv4 has one
        experiment = store.experiment("kv8")
        assert experiment is not None
        columns = [c.name for c in ExperimentRow.__table__.columns if c.name != "id"]
        store.declare(ExperimentRow(**({c: experiment.__dict__[c] for c in columns} | {"name": "gone"})))
        assert audit.audit(store, DAY)[0] == ["gone has a row but neither a file nor a breadcrumb"]
        power = audit.power(compose("kv8"), store)
    assert [row["quads"] for row in power[:2]] == [16, 32]
    assert power[0]["mde"] > power[1]["mde"] > 0
    with pytest.raises(errors.InvalidValue, match="2026"):
        audit.parse_day("tomorrow")
