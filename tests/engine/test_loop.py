"""The engine's loop: order of work, failures that stay with their job, and one end for everything."""

from __future__ import annotations

import subprocess
import sys
import threading
from pathlib import Path

import pytest

from engine import errors
from engine.sched.loop import Loop


class Counted:
    """A job of `units` units that notes the thread it runs on."""

    def __init__(self, units: int, log: list[str], name: str) -> None:
        self.left, self.log, self.name = units, log, name
        self.done = threading.Event()
        self.cause: BaseException | None = None

    def advance(self) -> bool:
        self.log.append(f"{self.name}@{threading.current_thread().name}")
        self.left -= 1
        if self.left == 0:
            self.done.set()
        return self.left > 0

    def abandon(self, cause: BaseException) -> None:
        self.cause = cause
        self.done.set()


def test_jobs_run_in_order_of_arrival_on_one_thread() -> None:
    loop, log = Loop(manual=False), []
    jobs = [Counted(2, log, "a"), Counted(1, log, "b")]
    for job in jobs:
        loop.submit(job)
    for job in jobs:
        assert job.done.wait(10)
    loop.close()
    assert log == ["a@mlx-frontier-engine", "a@mlx-frontier-engine", "b@mlx-frontier-engine"]


def test_calls_run_between_units_and_hand_back_results_and_errors() -> None:
    loop = Loop(manual=False)
    assert loop.call(lambda: threading.current_thread().name) == "mlx-frontier-engine"
    assert loop.call(lambda: loop.call(lambda: 5)) == 5

    def fail() -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        loop.call(fail)
    assert loop.call(lambda: 1) == 1
    loop.close()


def test_close_abandons_what_waits_and_refuses_what_comes() -> None:
    loop = Loop(manual=True)
    job = Counted(3, [], "a")
    loop.submit(job)
    assert loop.step()
    loop.close()
    assert isinstance(job.cause, errors.EngineClosed)
    for refused in (loop.step, lambda: loop.call(lambda: 1), lambda: loop.submit(job)):
        with pytest.raises(errors.EngineClosed):
            refused()


def test_manual_step_says_when_it_is_idle() -> None:
    loop, log = Loop(manual=True), []
    assert not loop.step()
    loop.submit(Counted(2, log, "a"))
    assert [loop.step(), loop.step(), loop.step()] == [True, True, False]
    assert len(log) == 2
    loop.close()


def test_a_program_that_ends_in_mid_stream_ends_well(llama_folder: Path) -> None:
    program = (
        "import sys; from engine import SamplingParams, load\n"
        "events = load(sys.argv[1]).stream([5, 6, 7], SamplingParams(max_tokens=2000, ignore_eos=True))\n"
        "next(events)"
    )
    done = subprocess.run([sys.executable, "-c", program, str(llama_folder)], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
