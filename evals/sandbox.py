"""Runs a Python program that a model wrote, and its tests, where it can do no harm; or does not run it at all.

The program is one process and one thread of an unprivileged user (another one where this process is root): no network,
no new process, no write outside of a folder that is thrown away, limits on time, memory, files and disk, a fixed
environment, no standard input and no descriptor of this process. Files may be read. The interpreter is this
one without its installed packages; hashes of strings and `random` are seeded, so that a verdict does not move.

The verdict comes on a descriptor of the harness with a token that the program is not given: printing, exiting or
closing files is not passing. A program that sets out to search the memory of its own process could still find it.
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import secrets
import select
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import psutil

SECONDS = 10.0
MEMORY_BYTES = 1 << 30
FILE_BYTES = 16 << 20
DISK_BYTES = 64 << 20
DISK_ENTRIES = 1000
START_SECONDS = 30.0
FIRST_UID = 61184  # of the numbers that systems keep for users without an account
_WATCH_SECONDS = 0.05
_VERDICT_BYTES = 1 << 16
_BLOCKS = Path(__file__).with_name("sandbox_blocks.py")


@dataclass(frozen=True)
class Verdict:
    """kind: "passed"; "failed" (a test, an exception, an end before the tests' end, too much disk); "timed out";
    "memory"; "refused" (a block could not be installed, so nothing ran). why: in words, "" where it passed."""

    kind: Literal["passed", "failed", "timed out", "memory", "refused"]
    why: str = ""


def run(program: str, tests: str = "", *, seconds: float = SECONDS, memory_bytes: int = MEMORY_BYTES) -> Verdict:
    """Runs `program`, then `tests` in the same namespace; passed if both run to their end without an exception.

    seconds: of the clock, from the program's first line on. memory_bytes: of address space (macOS: resident).
    """
    reason = available()
    return Verdict("refused", reason) if reason else _run(program, tests, seconds, memory_bytes)


@functools.cache
def available() -> str:
    """What is missing for programs to be run safely, and `run` refuses with; "" where nothing is. Found out once a
    process, by a program that tries to get out."""
    outside = Path(tempfile.gettempdir(), f"escaped-{secrets.token_hex(8)}")
    verdict = _run(_PROBE.format(outside=str(outside)), "", START_SECONDS, MEMORY_BYTES)
    outside.unlink(missing_ok=True)
    if verdict.kind == "passed":
        return ""
    return f"no sandbox: {verdict.why or verdict.kind}"


_PROBE = """
import os, socket
def write():
    open({outside!r}, "w").close()
def connect():
    socket.create_connection(("127.0.0.1", 9), 1)
def fork():
    if os.fork() == 0:
        os._exit(0)
for what, attempt in (("a write outside", write), ("the network", connect), ("a new process", fork)):
    try:
        attempt()
    except PermissionError:
        continue
    except BaseException as error:
        raise SystemError(what + " is not blocked") from error
    raise SystemError(what + " is not blocked")
assert os.geteuid() != 0, "still root"
"""


def _run(program: str, tests: str, seconds: float, memory_bytes: int) -> Verdict:
    token = secrets.token_hex(16)
    job = json.dumps({"token": token, "program": program, "tests": tests}).encode()
    with tempfile.TemporaryDirectory(prefix="sandbox-") as root, tempfile.TemporaryFile() as given:
        given.write(job)
        given.seek(0)
        os.chmod(root, 0o755)
        folder, mount_point = Path(root, "work"), Path(root, "python")
        folder.mkdir(mode=0o700)
        mount_point.mkdir(mode=0o755)
        limits = (memory_bytes, int(seconds) + 1, FILE_BYTES)
        base = str(Path(sys._base_executable).resolve())  # type: ignore[attr-defined]  # that of a venv reads pyvenv.cfg
        command = [base, "-P", "-s", "-S", str(_BLOCKS), str(folder), str(mount_point), *map(str, (FIRST_UID, *limits))]
        child = subprocess.Popen(
            command,
            stdin=given,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env={"PYTHONHASHSEED": "0"},
            cwd=root,
            start_new_session=True,
        )
        try:
            return _Watch(child, token, folder, seconds, memory_bytes).verdict()
        finally:
            _end(child)


def _end(child: subprocess.Popen[bytes]) -> None:
    """Kills the whole group and collects it."""
    if child.poll() is None:
        # macOS answers "not permitted" for a group whose only member has just ended.
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(child.pid, signal.SIGKILL)
    child.wait()
    if child.stdout is not None:
        child.stdout.close()


class _Watch:
    """Reads what a child says until it has a verdict, or breaks one of the limits that the parent keeps."""

    def __init__(
        self, child: subprocess.Popen[bytes], token: str, folder: Path, seconds: float, memory_bytes: int
    ) -> None:
        self.child, self.token, self.folder = child, token.encode(), folder
        self.seconds, self.memory_bytes = seconds, memory_bytes
        self.said = b""
        self.started = False

    def verdict(self) -> Verdict:
        deadline = time.monotonic() + START_SECONDS
        while True:
            left = deadline - time.monotonic()
            if left <= 0:
                return Verdict("timed out", f"after {self.seconds:g} s") if self.started else self._refused("no answer")
            if self._read(min(left, _WATCH_SECONDS)):
                return self._ended()
            for line in self.said.split(b"\n")[:-1]:
                word, _, rest = line.removeprefix(self.token + b" ").partition(b" ")
                if not line.startswith(self.token + b" "):
                    continue
                if word == b"started" and not self.started:
                    self.started, deadline = True, time.monotonic() + self.seconds
                if word == b"passed":
                    return Verdict("passed")
                if word == b"failed":
                    return Verdict("failed", rest.decode("ascii", "replace"))
                if word == b"memory":
                    return Verdict("memory", f"more than {self.memory_bytes} bytes")
            over = self._over()
            if over is not None:
                return over

    def _read(self, seconds: float) -> bool:
        """Waits for output; true at its end, or when it is too much to be a verdict."""
        assert self.child.stdout is not None
        ready, _, _ = select.select([self.child.stdout], [], [], seconds)
        if not ready:
            return False
        block = os.read(self.child.stdout.fileno(), 4096)
        self.said += block
        return not block or len(self.said) > _VERDICT_BYTES

    def _ended(self) -> Verdict:
        _end(self.child)
        if not self.started:
            return self._refused(f"exit status {self.child.returncode}")
        code = self.child.returncode
        if code == -signal.SIGXCPU:
            return Verdict("timed out", f"{int(self.seconds) + 1} s of CPU")
        how = f"signal {-code}" if code < 0 else f"exit status {code}"
        return Verdict("failed", f"ended before its tests did ({how})")

    def _refused(self, how: str) -> Verdict:
        lines = self.said.decode("utf-8", "replace").split("\n")
        return Verdict("refused", next((line for line in reversed(lines) if line.strip()), how)[:300])

    def _over(self) -> Verdict | None:
        """A limit that no kernel keeps for us: memory on macOS, disk."""
        try:
            resident = psutil.Process(self.child.pid).memory_info().rss
        except psutil.Error:  # it has ended; the next read says so
            return None
        if resident > self.memory_bytes:
            return Verdict("memory", f"more than {self.memory_bytes} bytes")
        held = entries = 0
        closed: list[OSError] = []
        for where, _, names in os.walk(self.folder, onerror=closed.append):
            for name in names:
                with contextlib.suppress(FileNotFoundError):
                    held += os.lstat(os.path.join(where, name)).st_size
            entries += len(names) + 1
            if held > DISK_BYTES or entries > DISK_ENTRIES:
                return Verdict("failed", f"more than {DISK_BYTES} bytes or {DISK_ENTRIES} entries on disk")
        if any(isinstance(error, PermissionError) for error in closed):
            return Verdict("failed", "a folder that cannot be listed")
        return None
