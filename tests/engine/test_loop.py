"""The engine's loop: one thread, calls between turns, and one end for everything."""

from __future__ import annotations

import subprocess
import sys
import threading
from pathlib import Path

import pytest

from engine import errors
from engine.sched.loop import Loop


class Counted:
    """Work of `turns` turns that notes the thread it runs on."""

    def __init__(self, turns: int, log: list[str]) -> None:
        self.left, self.log = turns, log
        self.done = threading.Event()
        self.cause: BaseException | None = None

    def ready(self) -> bool:
        return self.left > 0

    def wait_s(self) -> float | None:
        return None

    def turn(self) -> bool:
        if not self.left:
            return False
        self.log.append(threading.current_thread().name)
        self.left -= 1
        if self.left == 0:
            self.done.set()
        return True

    def abandon(self, cause: BaseException) -> None:
        self.cause = cause


def test_turns_run_on_one_thread_and_wait_for_work() -> None:
    loop, log = Loop(manual=False), []
    work = Counted(2, log)
    loop.drive(work)
    assert work.done.wait(10)
    work.done.clear()
    loop.submit(lambda: setattr(work, "left", 1))
    assert work.done.wait(10)
    loop.close()
    assert log == ["mlx-frontier-engine"] * 3


def test_calls_run_between_turns_and_hand_back_results_and_errors() -> None:
    loop = Loop(manual=False)
    assert loop.call(lambda: threading.current_thread().name) == "mlx-frontier-engine"
    assert loop.call(lambda: loop.call(lambda: 5)) == 5

    def fail() -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        loop.call(fail)
    assert loop.call(lambda: 1) == 1
    loop.close()


def test_close_abandons_the_work_and_refuses_what_comes() -> None:
    loop = Loop(manual=True)
    work = Counted(3, [])
    loop.drive(work)
    assert loop.step()
    loop.close()
    assert isinstance(work.cause, errors.EngineClosed)
    for refused in (loop.step, lambda: loop.call(lambda: 1), lambda: loop.submit(lambda: None)):
        with pytest.raises(errors.EngineClosed):
            refused()


def test_manual_step_says_when_it_is_idle() -> None:
    loop, log = Loop(manual=True), []
    assert not loop.step()
    loop.drive(Counted(2, log))
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
