"""Sessions that go on after a process has died, quads taken again, the shared A/A, the lock."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from lab_bench import TIMED, Lab, make_lab

from lab import fingerprint
from lab.deciding import replay
from lab.evidence import shared_aa, stored_conf
from lab.fingerprint import NotPairable
from lab.lock import TimingBusy, hold_timing
from lab.measure import group_quads
from lab.record import SessionRecord, read_samples
from lab.resume import NotResumable, SessionsSpent
from lab.tables import SessionRow
from oracles.contract import OracleCrashed

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Lab:
    return make_lab(tmp_path, monkeypatch)


def test_one_a_a_serves_the_experiments_of_a_session(lab: Lab) -> None:
    first = lab.run("kv4")
    before = lab.world.samples
    second = lab.run("kv8_4")
    assert any(line.startswith(f"A/A: 4 quads of session {first.session}") for line in lab.said)
    assert f"the A/A is the one of session {first.session}" in second.notes
    with lab.store() as store:
        session = store.sessions("kv8_4")[0]
        assert {s.part for s in read_samples(store, session.id)} == {"pilot", "ab"}
        assert lab.world.samples - before == second.samples
        mine = [c for c in second.comparisons if c.use == "aa" and c.metric == "decode_tok_s"]
        theirs = [c for c in first.comparisons if c.use == "aa" and c.metric == "decode_tok_s"]
        assert mine == theirs
        assert [r.state for r in replay(store, "kv8_4")] == ["same"]


@pytest.mark.matrix
def test_a_rerun_and_other_surroundings_have_an_a_a_of_their_own(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    lab.run("kv4")
    lab.run("kv4")
    with lab.store() as store:
        first, again = store.sessions("kv4")
        conf = stored_conf(store, first)
        assert {s.part for s in read_samples(store, again.id)} == {"pilot", "aa", "ab"}
        lab.run("kv8_4", "profile.max_tokens=20")
        other = store.sessions("kv8_4")[0]
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


class Killed(BaseException):
    """What a test raises where a process would be gone: nothing is noted of it."""


def kill_at(lab: Lab, monkeypatch: pytest.MonkeyPatch, sample: int) -> None:
    """Run until the sample of that number, then die without a word."""
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
