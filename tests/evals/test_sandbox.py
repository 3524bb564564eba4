"""The sandbox: what must not get out does not, what ends early has not passed, and without a block nothing runs.

On a machine without a sandbox every program must be refused, with the same reason; that is what is tested there.
"""

from __future__ import annotations

import errno
import os
import shutil
import socket
import struct
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from evals import sandbox, sandbox_blocks
from evals.sandbox import Verdict

FLOOD = """import os
for fd in os.listdir('/dev/fd'):
    try:
        os.write(int(fd), {data})
    except OSError: pass
"""


def expect(verdict: Verdict, kind: str, why: str = "") -> None:
    """The verdict, or the machine's one reason why there is none."""
    if sandbox.available():
        assert verdict == Verdict("refused", sandbox.available())
    else:
        assert (verdict.kind, why in verdict.why) == (kind, True), verdict


@pytest.fixture
def outside() -> Iterator[Path]:
    """A folder in which anybody may write, with one file: only the sandbox stands before it."""
    folder = Path(tempfile.mkdtemp(prefix="outside-"))
    folder.chmod(0o777)
    (folder / "kept.txt").write_text("kept")
    (folder / "kept.txt").chmod(0o666)
    yield folder
    shutil.rmtree(folder)


def mutant(monkeypatch: pytest.MonkeyPatch, folder: Path, old: str, new: str) -> None:
    """From now on the child installs its blocks with a changed script."""
    source = Path(sandbox_blocks.__file__)
    text = source.read_text(encoding="utf-8")
    assert text.count(old) == 1
    (folder / source.name).write_text(text.replace(old, new), encoding="utf-8")
    shutil.copy(source.with_name("sandbox_harness.py"), folder)
    monkeypatch.setattr(sandbox, "_BLOCKS", folder / source.name)


def test_a_right_program_passes_and_a_wrong_one_says_why() -> None:
    program = "def double(x):\n    return 2 * x\n"
    expect(sandbox.run(program, "assert double(2) == 4"), "passed")
    expect(sandbox.run(program, "assert double(2) == 5, 'not five'"), "failed", "AssertionError: not five")
    expect(sandbox.run("1 / 0"), "failed", "ZeroDivisionError: division by zero")


@pytest.mark.parametrize("program", ["def f(:", "x = 1\0", "x = '\ud800'", "    x = 1", "(" * 5000])
def test_what_is_no_program_fails(program: str) -> None:
    expect(sandbox.run(program), "failed", "Error: ")


def test_usual_python_works() -> None:
    program = (
        "from __future__ import annotations\nimport collections, dataclasses, enum, math, pickle, re, typing\n"
        "@dataclasses.dataclass\nclass Pair:\n    a: typing.ClassVar[int] = 1\n    b: int = 2\n"
        "with open('own.txt', 'w') as f:\n    f.write('mine')\n"
        "if __name__ == '__main__':\n    raise SystemExit('a main guard ran')\n"
    )
    tests = "assert pickle.loads(pickle.dumps(Pair(b=3))).b == 3 and open('own.txt').read() == 'mine'"
    expect(sandbox.run(program, tests), "passed")


def test_the_same_program_does_the_same_twice() -> None:
    shown = [sandbox.run("import random\nraise ValueError(hash('a'), random.random())") for _ in range(2)]
    expect(shown[0], "failed", "ValueError: (")
    assert shown[0] == shown[1]


@pytest.mark.parametrize(
    "leave",
    [
        "import sys; sys.exit(0)",
        "raise SystemExit",
        "import os; os._exit(0)",
        "import os; os.execv('/bin/true', ['true'])",
        "import os, signal; os.kill(os.getpid(), signal.SIGKILL)",
        "import ctypes; ctypes.string_at(0)",
        "print('passed')\nimport os; os.closerange(0, 64)",
        FLOOD.format(data="b'passed\\n' + b'0' * 32 + b' passed\\n'") + "os._exit(0)",
        "import atexit; atexit.register(print, 'passed'); raise SystemExit",
        "class Sly(Exception):\n    def __str__(self):\n        import os; os._exit(0)\nraise Sly",
    ],
)
def test_an_end_before_the_tests_is_no_pass(leave: str) -> None:
    expect(sandbox.run(leave, "raise ValueError('tests reached')"), "failed")
    expect(sandbox.run("def f():\n    " + leave.replace("\n", "\n    "), "f()\nraise ValueError('over')"), "failed")


@pytest.mark.parametrize(
    "bomb",
    [
        "import os\nwhile True: os.fork()",
        "import subprocess; subprocess.run(['/bin/true'])",
        "import os; os.posix_spawn('/bin/true', ['true'], {})",
        "import multiprocessing; multiprocessing.get_context('fork').Process(target=print).start()",
        "import threading\nwhile True: threading.Thread(target=input).start()",
    ],
)
def test_no_process_and_no_thread(bomb: str) -> None:
    before = psutil.Process().children(recursive=True)
    expect(sandbox.run(bomb, seconds=2.0), "failed", "Error: ")
    assert set(psutil.Process().children(recursive=True)) <= set(before)


def test_reading_outside_works_and_no_kind_of_writing_does(outside: Path) -> None:
    program = f"""
import os, pathlib
kept, new = pathlib.Path({str(outside / "kept.txt")!r}), pathlib.Path({str(outside / "new")!r})
assert kept.read_text() == "kept"
def truncate():
    os.close(os.open(kept, os.O_RDONLY | os.O_TRUNC))
def into_by_link():
    os.link(kept, "linked")
    open("linked", "w").close()
def through_symlink():
    if not os.path.islink("soft"):
        os.symlink(kept, "soft")
    open("soft", "w").close()
attempts = [
    lambda: kept.write_text("x"), lambda: open(kept, "a"), lambda: open(kept, "r+"), truncate,
    lambda: os.truncate(kept, 0), lambda: new.write_text("x"), new.mkdir, lambda: os.mkfifo(new), kept.unlink,
    lambda: kept.rename(new), lambda: kept.rename("mine"), lambda: os.symlink("a", new), lambda: os.link(kept, new),
    lambda: kept.chmod(0), lambda: os.utime(kept, (1, 1)), lambda: os.setxattr(kept, "user.a", b"1"),
    lambda: os.chown(kept, os.getuid(), -1), into_by_link, through_symlink,
    lambda: open("/dev/shm/" + new.parent.name, "w"), lambda: open("/proc/self/oom_score_adj", "w"),
]
"""
    tests = """
for number, attempt in enumerate(attempts):
    try:
        attempt()
    except (OSError, AttributeError):  # not every system has every call
        continue
    raise RuntimeError(number)
"""
    before = (outside / "kept.txt").stat()
    expect(sandbox.run(program, tests), "passed")
    after = (outside / "kept.txt").stat()
    assert [path.name for path in outside.iterdir()] == ["kept.txt"]
    assert (outside / "kept.txt").read_text() == "kept"
    assert (after.st_mode, after.st_uid, after.st_mtime_ns) == (before.st_mode, before.st_uid, before.st_mtime_ns)


def test_no_network() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(0)
        program = f"""
import socket
def connect():
    socket.create_connection(("127.0.0.1", {server.getsockname()[1]}), 1)
def datagram():
    socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b"x", ("127.0.0.1", 9))
def local():
    socket.socket(socket.AF_UNIX).connect("/run/any")
for attempt in (connect, datagram, local):
    try:
        attempt()
    except PermissionError:
        continue
    raise RuntimeError(attempt)
"""
        expect(sandbox.run(program), "passed")
        with pytest.raises(BlockingIOError):
            server.accept()


@pytest.mark.parametrize(
    "loop", ["while True: pass", "import time; time.sleep(1000)", "while True: print('x' * 10**6)"]
)
def test_a_program_without_end_is_stopped(loop: str) -> None:
    before = psutil.Process().children(recursive=True)
    resident, start = psutil.Process().memory_info().rss, time.monotonic()
    expect(sandbox.run(loop, seconds=0.5), "timed out", "after 0.5 s")
    assert time.monotonic() - start < 2.5
    assert psutil.Process().memory_info().rss - resident < 50e6
    assert set(psutil.Process().children(recursive=True)) <= set(before)


def test_a_program_that_ignores_signals_is_stopped() -> None:
    deaf = (
        "import signal\nfor s in range(1, 32):\n    try: signal.signal(s, signal.SIG_IGN)\n    except OSError: pass\n"
    )
    expect(sandbox.run(deaf + "while True: pass", seconds=0.5), "timed out")


def test_a_flood_on_the_channel_of_the_verdict_is_cut_off() -> None:
    resident = psutil.Process().memory_info().rss
    expect(sandbox.run("while True:\n    " + FLOOD.format(data="b'x' * 10**6").replace("\n", "\n    ")), "failed")
    assert psutil.Process().memory_info().rss - resident < 50e6


@pytest.mark.parametrize(
    "hog", ["bytes(1 << 40)", "x = []\nwhile True: x.append(b'1' * (1 << 20))", "x = [0] * 10**10"]
)
def test_memory_is_limited(hog: str) -> None:
    expect(sandbox.run(hog, memory_bytes=200 << 20), "memory", "more than 209715200 bytes")


def test_a_program_may_handle_that_memory_is_short() -> None:
    expect(sandbox.run("try:\n    bytes(1 << 40)\nexcept MemoryError:\n    pass", "assert True"), "passed")


def test_the_parent_watches_memory_where_the_kernel_does_not(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    sandbox.available()  # is asked with the true blocks
    mutant(monkeypatch, tmp_path, "wanted.append((resource.RLIMIT_AS, memory, memory))", "pass")
    expect(sandbox.run("x = []\nwhile True: x.append(b'1' * (1 << 20))", memory_bytes=200 << 20), "memory")


def test_disk_is_limited() -> None:
    expect(sandbox.run("with open('a', 'wb') as f:\n    f.write(bytes(20 << 20))"), "failed", "File too large")
    many = "for i in range(10**6):\n    with open(str(i), 'wb') as f:\n        f.write(bytes({size}))\n"
    for size in (0, 8 << 20):
        expect(sandbox.run(many.format(size=size)), "failed", "on disk")


def test_nothing_of_this_process_is_handed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AN_API_KEY", "s3cret-of-the-parent")
    reading, writing = os.pipe()
    os.set_inheritable(writing, True)
    program = f"""
import os, sys
def refused(attempt):
    try:
        attempt()
    except OSError:
        return True
    return False
assert set(os.environ) <= {{"PYTHONHASHSEED", "LC_CTYPE", "LD_LIBRARY_PATH"}}, set(os.environ)
assert refused(lambda: open(f"/proc/{{os.getppid()}}/environ").read()), "environ"
assert refused(lambda: os.kill(os.getppid(), 0)), "kill"
assert refused(lambda: os.fstat({writing})) and refused(lambda: os.fstat({reading})), "descriptors"
assert sys.stdin.read() == ""
assert os.geteuid() != 0 and refused(lambda: os.setuid(0)), "user"
assert not any("site-packages" in path for path in sys.path), sys.path
"""
    expect(sandbox.run(program), "passed")
    os.close(reading)
    os.close(writing)


def test_nothing_is_left_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    sandbox.available()
    program = "import os\nos.makedirs('a/b')\nopen('a/b/c', 'w').close()\nos.mkdir('shut', 0o300)"
    with tempfile.TemporaryDirectory() as own:
        Path(own).chmod(0o755)
        monkeypatch.setattr(tempfile, "tempdir", own)
        expect(sandbox.run(program), "passed")
        expect(sandbox.run("while True: pass", seconds=0.2), "timed out")
        assert list(Path(own).iterdir()) == []


def test_without_a_sandbox_no_process_is_started(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sandbox, "available", lambda: "no sandbox: landlock")
    monkeypatch.setattr(sandbox.subprocess, "Popen", None)
    assert sandbox.run("pass") == Verdict("refused", "no sandbox: landlock")


MISSING = {
    "linux": [
        ("_LANDLOCK_RESTRICT = 444, 445, 446", "_LANDLOCK_RESTRICT = 9999, 445, 446", "landlock: syscall"),
        ("_LANDLOCK_ABI = 3", "_LANDLOCK_ABI = 99", "landlock: version"),
        ("_PR_CAP_AMBIENT = 1, 22", "_PR_CAP_AMBIENT = 1, 9999", "seccomp: prctl"),
        ("platform.machine()", "'toaster'", "no table of system calls for toaster"),
        ("    wanted = [\n", "    wanted = [\n        (resource.RLIMIT_STACK, 9, 8),\n", "resource limits"),
    ],
    "darwin": [("/usr/bin/sandbox-exec", "/usr/bin/no-sandbox-exec", "No such file")],
}[sys.platform]
if os.geteuid() == 0:
    MISSING.append(("        os.setgroups([])\n", "        raise OSError('not permitted')\n", "another user: "))


@pytest.mark.parametrize(("old", "new", "named"), MISSING)
def test_a_block_that_cannot_be_installed_is_named_and_nothing_runs(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, outside: Path, old: str, new: str, named: str
) -> None:
    sandbox.available()
    mutant(monkeypatch, tmp_path, old, new)
    verdict = sandbox._run(f"open({str(outside / 'ran')!r}, 'w')", "", 5.0, 1 << 30)
    assert verdict.kind == "refused"
    assert sandbox.available() or named in verdict.why
    assert not (outside / "ran").exists()
    assert sandbox.available.__wrapped__() == f"no sandbox: {verdict.why}"


LEAKS = {
    "linux": [
        ("        landlock(libc, folder)\n", "", "a write outside is not blocked"),
        ("        seccomp(libc)\n", "", "the network is not blocked"),
        ('"clone 56 220, fork 57 -, vfork 58 -"', '"clone 999 999"', "a new process is not blocked"),
    ],
    "darwin": [
        ("(deny file-write*)\n", "", "a write outside is not blocked"),
        ("(deny network*)\n", "", "the network is not blocked"),
        ("(deny process-fork)\n", "", "a new process is not blocked"),
    ],
}[sys.platform]
if os.geteuid() == 0:
    LEAKS.append(("        become(user)\n", "", "still root"))


@pytest.mark.parametrize(("old", "new", "named"), LEAKS)
def test_the_probe_notices_a_block_that_does_not_hold(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, old: str, new: str, named: str
) -> None:
    sandbox.available()
    mutant(monkeypatch, tmp_path, old, new)
    reason = sandbox.available.__wrapped__()
    assert reason.startswith("no sandbox: ")
    assert sandbox.available() or named in reason


ALLOW, REFUSE, ABSENT, KILL = 0x7FFF0000, 0x50000 | errno.EPERM, 0x50000 | errno.ENOSYS, 0x80000000


def interpret(code: bytes, number: int, architecture: int, argument: int) -> int:
    """What the kernel would answer: the four instructions of classic BPF that the filter uses."""
    data = struct.pack("<IIQQ", number, architecture, 0, argument)
    at = accumulator = 0
    while True:
        kind, jump, other, value = struct.unpack_from("<HBBI", code, 8 * at)
        if kind == 0x06:
            return value
        if kind == 0x20:
            accumulator = struct.unpack_from("<I", data, value)[0]
        else:
            assert kind in (0x15, 0x25)
            holds = accumulator == value if kind == 0x15 else accumulator > value
            at += jump if holds else other
        at += 1


@pytest.mark.parametrize(
    ("machine", "column", "usual"), [("x86_64", 0, (0, 1, 9, 59, 231, 257)), ("aarch64", 1, (56, 63, 64, 94, 221, 222))]
)
def test_the_filter_of_system_calls(machine: str, column: int, usual: tuple[int, ...]) -> None:
    architecture = sandbox_blocks.ARCHITECTURES[machine][1]
    code = sandbox_blocks.bpf(machine, 4242)

    def answer(number: int, argument: int = 0) -> int:
        return interpret(code, number, architecture, argument)

    assert {answer(number) for number in usual} == {ALLOW}
    for table in sandbox_blocks.DENIED.values():
        assert {answer(number) for number in sandbox_blocks.numbers(table, column)} == {REFUSE}
    kill, tgkill, limits = sandbox_blocks.numbers(sandbox_blocks.OWN_PROCESS_ONLY, column)
    for number in (kill, tgkill):
        assert [answer(number, pid) for pid in (4242, 4243, 0, 2**32 - 1)] == [ALLOW, REFUSE, REFUSE, REFUSE]
    assert [answer(limits, pid) for pid in (4242, 4243, 0)] == [ALLOW, REFUSE, ALLOW]
    assert {answer(number) for number in (435, 463, 999, 0x40000000 + 41)} == {ABSENT}
    assert interpret(code, usual[0], 0x40000003, 0) == KILL
    with pytest.raises(sandbox_blocks.NoBlock, match="riscv64"):
        sandbox_blocks.bpf("riscv64", 1)
