"""Confirmations, resumed sessions, the shared A/A, the lock, decide and replay, on invented workers."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import asdict, replace
from datetime import date
from pathlib import Path

import pytest
from lab_bench import DAY, Lab, make_lab
from sqlalchemy import create_engine
from sqlalchemy import text as sql

from engine import machine
from lab import cli, deciding, fingerprint
from lab.confirm import NotConfirmable
from lab.deciding import NothingToDecide, decide_again, replay
from lab.evidence import Moment, confirmations, judge_search, searches, shared_aa, stored_conf
from lab.fingerprint import NotPairable
from lab.lock import TimingBusy, hold_timing
from lab.measure import group_quads
from lab.record import read_samples
from lab.resume import NotResumable, SessionsSpent
from lab.store import Store
from lab.tables import ComparisonRow, SessionEventRow, SessionRow
from lab.verdict import Judged
from oracles.contract import OracleCrashed

ROOT = Path(__file__).resolve().parents[2]
OURS = ("experiment.kind=ours", "experiment.guardrails=[prefill_tok_s]", "experiment.delta=null")
TIMED = (*OURS, "experiment.primary=decode_tok_s", "experiment.targets=[a-key,another]")


@pytest.fixture
def lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Lab:
    return make_lab(tmp_path, monkeypatch)


def events(store: Store, uid: str, name: str) -> list[dict[str, object]]:
    row = store.rows(SessionRow, uid=uid)[0]
    return [e.detail for e in store.rows(SessionEventRow, session_id=row.id, event=name)]


# --- confirmation ----------------------------------------------------------------------------------------------------


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


def make_pending(lab: Lab) -> None:
    """Have the newest decision ask for a confirmation, where a quick run decided nothing."""
    edit(lab, "decision", "UPDATE decision SET rule_row = '4', verdict = 'confirm (counted)'")


def edit(lab: Lab, table: str, statement: str) -> None:
    """Change rows that the triggers protect."""
    engine = create_engine(f"sqlite:///{lab.url}")
    with engine.begin() as connection:
        connection.execute(sql(f"DROP TRIGGER {table}_no_update"))
        assert connection.execute(sql(statement)).rowcount
    engine.dispose()


def test_nothing_to_confirm(lab: Lab) -> None:
    with pytest.raises(NotConfirmable, match="has no decision on machine key"):
        lab.confirm()
    lab.run(profile="quick")
    with pytest.raises(NotConfirmable, match="its newest decision is row 8: undecided: quick profile"):
        lab.confirm()


# --- planted experiments ---------------------------------------------------------------------------------------------


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


# --- the shared A/A --------------------------------------------------------------------------------------------------


def test_one_a_a_serves_the_experiments_of_a_session(lab: Lab) -> None:
    first = lab.run("kv8")
    before = lab.world.samples
    second = lab.run("kv4")
    assert any(line.startswith(f"A/A: 4 quads of session {first.session}") for line in lab.said)
    assert f"the A/A is the one of session {first.session}" in second.notes
    with lab.store() as store:
        session = store.sessions("kv4")[0]
        assert {s.part for s in read_samples(store, session.id)} == {"pilot", "ab"}
        assert lab.world.samples - before == second.samples
        mine = [c for c in second.comparisons if c.use == "aa" and c.metric == "decode_tok_s"]
        theirs = [c for c in first.comparisons if c.use == "aa" and c.metric == "decode_tok_s"]
        assert mine == theirs
        assert [r.state for r in replay(store, "kv4")] == ["same"]


@pytest.mark.matrix
def test_a_rerun_and_other_surroundings_have_an_a_a_of_their_own(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    lab.run("kv8")
    lab.run("kv8")
    with lab.store() as store:
        first, again = store.sessions("kv8")
        conf = stored_conf(store, first)
        assert {s.part for s in read_samples(store, again.id)} == {"pilot", "aa", "ab"}
        lab.run("kv4", "profile.max_tokens=20")
        other = store.sessions("kv4")[0]
        assert {s.part for s in read_samples(store, other.id)} == {"pilot", "aa", "ab"}
        assert shared_aa(store, other, conf) is None
        fits = SessionRow(**{c.name: getattr(other, c.name) for c in SessionRow.__table__.columns})
        fits.workload_id = first.workload_id
        taken = shared_aa(store, fits, conf)
        assert taken is not None
        assert taken.uid == again.uid
        for name in ("boot", "code_id", "env_id", "machine_id"):
            kept = getattr(fits, name)
            setattr(fits, name, "another" if name == "boot" else 99)
            assert shared_aa(store, fits, conf) is None
            setattr(fits, name, kept)
        conf.profile.aa_quads = 16
        assert shared_aa(store, fits, conf) is None


# --- resume ----------------------------------------------------------------------------------------------------------


class Killed(BaseException):
    """What a test raises where a process would be gone: nothing is noted of it."""


def kill_at(lab: Lab, monkeypatch: pytest.MonkeyPatch, sample: int) -> None:
    """Run until the sample of that number, then die without a word."""
    from lab.record import SessionRecord

    take = SessionRecord.sample

    def die(self: SessionRecord, taken: object) -> None:
        if lab.world.samples >= sample:
            raise Killed
        take(self, taken)

    with monkeypatch.context() as patch:
        patch.setattr(SessionRecord, "sample", die)
        patch.setattr(SessionRecord, "__exit__", lambda *_: None)
        with pytest.raises(Killed):
            lab.run()


KILLS = [*(pytest.param(n, marks=pytest.mark.matrix) for n in (5, 30, 60, 100)), 45]


@pytest.mark.parametrize("sample", KILLS)
def test_a_killed_run_goes_on_where_it_was(lab: Lab, monkeypatch: pytest.MonkeyPatch, sample: int) -> None:
    """Killed in the pilot, the A/A and the A/B: every sample stays, every planned quad counts once."""
    kill_at(lab, monkeypatch, sample)
    with lab.store() as store:
        row = store.sessions("kv8")[0]
        assert store.outcome(row.id) == "open"
        before = read_samples(store, row.id)
        assert len(before) == sample - 1
    result = lab.resume()
    assert result.verdict == "confirm (counted)"
    with lab.store() as store:
        assert len(store.sessions("kv8")) == 1
        assert store.outcome(row.id) == "finished"
        after = read_samples(store, row.id)
        assert after[: len(before)] == before
        for part, planned in (("aa", 4), ("ab", 16)):
            quads = group_quads(after, part)
            assert [quad.block for quad in quads] == list(range(planned))
            assert all(quad.valid and len(quad.samples) == 4 for quad in quads)
            for launch in {quad.launch for quad in quads}:
                pids = {s.pid for quad in quads if quad.launch == launch for s in quad.samples}
                assert len(pids) == 2  # none of the processes that died
        whole = [s for s in before if s.part == "aa" and s.launch == 0 and not s.warm_up]
        if len(whole) == 8:
            assert [s for quad in group_quads(after, "aa")[:2] for s in quad.samples] == whole
        assert [r.state for r in replay(store, "kv8")] == ["same"]


KILLED_RUN = """
import os, signal, sys
from pathlib import Path
sys.path.insert(0, sys.argv[1])
import pytest
from lab_bench import make_lab
lab = make_lab(Path(sys.argv[2]), pytest.MonkeyPatch(), begun=True)
real = lab.world.clock
def clock():
    if lab.world.samples == 45:
        os.kill(os.getpid(), signal.SIGKILL)
    return real()
lab.world.clock = clock
lab.run()
"""


@pytest.mark.matrix
def test_a_run_that_was_killed_by_the_system_goes_on(lab: Lab) -> None:
    words = [sys.executable, "-c", KILLED_RUN, str(Path(__file__).parent), str(lab.path)]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == -signal.SIGKILL, done.stderr
    with lab.store() as store:
        row = store.sessions("kv8")[0]
        assert (store.outcome(row.id), len(read_samples(store, row.id))) == ("open", 44)
    assert lab.resume().row == "4"
    with lab.store() as store:
        quads = group_quads(read_samples(store, row.id), "ab")
        assert [quad.block for quad in quads] == list(range(16))
        assert [r.state for r in replay(store, "kv8")] == ["same"]


@pytest.mark.matrix
def test_a_crash_can_be_resumed_and_a_second_kill_too(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    lab.world.crash_at = 50
    with pytest.raises(OracleCrashed):
        lab.run()
    lab.world.crash_at = 60
    with pytest.raises(OracleCrashed):
        lab.resume()
    with lab.store() as store:
        assert store.outcome(store.sessions("kv8")[0].id) == "failed"
    lab.world.crash_at = -1
    assert lab.resume().row == "4"


@pytest.mark.matrix
def test_the_cap_counts_what_a_dead_process_used(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    lab.world.speed["kv8"] = 13.0
    words = (*TIMED, "profile.cap_minutes=2")
    from lab.record import SessionRecord

    with monkeypatch.context() as patch:
        patch.setattr(SessionRecord, "__exit__", lambda *_: None)
        lab.world.crash_at = 12 + 20 + 27  # in the third launch of the A/B
        with pytest.raises(OracleCrashed):
            lab.run("kv8", *words)
    lab.world.crash_at = -1
    result = lab.resume()
    primary = next(c for c in result.comparisons if c.use == "primary")
    assert primary.look is not None
    assert (primary.look.quads, result.verdict) == (6, "undecided: time")  # 8 for a run that never died


@pytest.mark.matrix
def test_a_fourth_session_of_the_same_source_is_refused(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    for _ in range(3):
        lab.run()
    with pytest.raises(SessionsSpent, match=r"has had its 3 sessions on .*max_sessions.*frontier lab decide kv8"):
        lab.run()
    lab.run(profile="quick")
    taken = fingerprint.take()
    repaired = replace(taken, code=replace(taken.code, arms_sha256="0" * 64))
    monkeypatch.setattr(fingerprint, "take", lambda: repaired)
    monkeypatch.setattr(fingerprint, "arms_sha256", lambda: "0" * 64)
    lab.run()


def test_a_run_says_which_session_did_not_end(lab: Lab) -> None:
    lab.world.crash_at = 9
    with pytest.raises(OracleCrashed):
        lab.run(profile="quick")
    lab.world.crash_at = -1
    lab.run(profile="quick")
    assert any(line.endswith("did not end: frontier lab resume kv8 goes on with it") for line in lab.said)


def test_source_that_changes_under_a_session_ends_it(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fingerprint, "arms_sha256", lambda: "0" * 64)
    with pytest.raises(NotPairable, match="the source of engine or oracles changed while the session was measured"):
        lab.run(profile="quick")
    with lab.store() as store:
        assert store.outcome(store.sessions("kv8")[0].id) == "failed"


def test_a_session_that_is_being_measured_is_not_resumed(lab: Lab) -> None:
    lab.world.crash_at = 9
    with pytest.raises(OracleCrashed):
        lab.run(profile="quick")
    lab.world.crash_at = -1
    with hold_timing("frontier lab run kv8", lab.path / "timing.lock"), pytest.raises(TimingBusy, match="runs 'front"):
        lab.resume()
    assert lab.resume().verdict == "undecided: quick profile"


def test_what_cannot_be_resumed(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(NotResumable, match="none of its 0 sessions"):
        lab.resume()
    done = lab.run(profile="quick")
    with pytest.raises(NotResumable, match="is finished"):
        lab.resume(uid=done.session)
    with pytest.raises(NotResumable, match="has no session nobody"):
        lab.resume(uid="nobody")
    lab.world.crash_at = lab.world.samples + 9
    with pytest.raises(OracleCrashed):
        lab.run(profile="quick")
    taken = fingerprint.take()
    monkeypatch.setattr(fingerprint, "take", lambda: replace(taken, boot="another"))
    with pytest.raises(NotResumable, match="boot: the machine was started anew"):
        lab.resume()


def test_an_invalid_quad_is_taken_again_in_its_processes(lab: Lab) -> None:
    lab.world.broken = {12 + 20 + 4: {"decode_tokens": 3}}  # in the first quad of the A/B
    result = lab.run()
    assert result.row == "4"
    with lab.store() as store:
        samples = read_samples(store, store.sessions("kv8")[0].id)
    again = [s for s in samples if s.part == "ab" and s.attempt == 1]
    assert [s.block for s in again] == [0] * 4
    assert {s.pid for s in again} == {s.pid for s in samples if s.part == "ab" and s.launch == 0}
    assert group_quads(samples, "ab")[0].samples == tuple(again)


# --- the lock --------------------------------------------------------------------------------------------------------


def test_a_second_timing_run_names_the_first(lab: Lab) -> None:
    lock = lab.path / "timing.lock"
    code = (
        "import sys; from pathlib import Path; from lab.lock import hold_timing\n"
        "with hold_timing('frontier lab run kv4', Path(sys.argv[1])):\n"
        "    print('held', flush=True); sys.stdin.read()\n"
    )
    other = subprocess.Popen(
        [sys.executable, "-c", code, str(lock)], cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert other.stdin is not None
    assert other.stdout is not None
    with other:
        assert other.stdout.readline() == b"held\n"
        with pytest.raises(TimingBusy, match=f"process {other.pid} runs 'frontier lab run kv4'"):
            lab.run()
        assert not Path(lab.url).exists()
        other.kill()  # the lock goes with the process
    with hold_timing("this test", lock):
        assert json.loads(lock.read_text())["pid"] == os.getpid()
    assert lab.run(profile="quick").verdict == "undecided: quick profile"


# --- decide and replay -----------------------------------------------------------------------------------------------


def test_decide_reads_the_database_alone(lab: Lab) -> None:
    with lab.store() as store, pytest.raises(NothingToDecide):
        decide_again(store, "kv8", DAY)
    lab.run()
    taken = lab.world.samples
    with lab.store() as store:
        (found,) = decide_again(store, "kv8", DAY)
        assert found.judged.decision.verdict == "confirm (counted)"
        assert len(store.decisions("kv8")) == 2
        assert asdict(found.judged.facts) == store.decisions("kv8")[0].facts
        with pytest.raises(NothingToDecide, match="on nowhere; measured on"):
            decide_again(store, "kv8", DAY, "nowhere")
    lab.confirm()
    with lab.store() as store:
        (found,) = decide_again(store, "kv8", date(2027, 2, 1))
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
    assert cli.main(["lab", "decide", "kv8", "--as-of", "2026-12-02", "--json"]) == 0
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
