"""The shell of the `frontier` command: errors, exit codes, global flags, help."""

from __future__ import annotations

import argparse
import io
import json
import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from engine import errors
from lab import cli, commands, console
from lab.commands import doctor

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(autouse=True)
def _bundled_blas(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(cli.BLAS_ENV, "bundled")


class Fake:
    """A command module whose run does what a test asks."""

    HELP = "a command"
    EXAMPLE = "frontier fake --count 3"

    def __init__(self, effect: object) -> None:
        self.effect = effect
        self.args: argparse.Namespace | None = None

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("--count", type=int, default=1)

    def run(self, args: argparse.Namespace) -> int:
        self.args = args
        if isinstance(self.effect, signal.Signals):
            os.kill(os.getpid(), self.effect)
        if isinstance(self.effect, BaseException):
            raise self.effect
        assert isinstance(self.effect, int)
        return self.effect


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> Fake:
    command = Fake(0)
    monkeypatch.setattr(cli, "load_command", lambda name: command)
    return command


def test_exit_code_is_the_commands(fake: Fake) -> None:
    assert cli.main(["parity"]) == 0
    fake.effect = 1
    assert cli.main(["parity"]) == 1


class ThreeError(errors.FrontierError):
    exit_code = 3


@pytest.mark.parametrize(
    ("effect", "code"),
    [(errors.EmptyPrompt(), 2), (ThreeError("died\n  twice"), 3), (PermissionError(13, "no", "x"), 2)],
)
def test_an_error_is_one_line(fake: Fake, capsys: pytest.CaptureFixture[str], effect: BaseException, code: int) -> None:
    fake.effect = effect
    assert cli.main(["parity"]) == code
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("error: ")
    assert err.count("\n") == 1
    assert cli.main(["parity", "--debug"]) == code
    assert "Traceback" in capsys.readouterr().err


def test_an_error_is_a_json_document_too(fake: Fake, capsys: pytest.CaptureFixture[str]) -> None:
    fake.effect = errors.InvalidValue("dtype", "float12", ("float32",))
    assert cli.main(["parity", "--json"]) == 2
    document = json.loads(capsys.readouterr().out)
    assert document == {"error": "dtype='float12' is not allowed; allowed: float32", "type": "InvalidValue"}


def test_a_bug_is_not_dressed_up(fake: Fake) -> None:
    fake.effect = ZeroDivisionError("bug")
    with pytest.raises(ZeroDivisionError):
        cli.main(["parity"])


def test_interrupt(fake: Fake, capsys: pytest.CaptureFixture[str]) -> None:
    fake.effect = KeyboardInterrupt()
    assert cli.main(["parity"]) == 130
    assert capsys.readouterr().err == "interrupted\n"


def test_sigterm_is_a_clean_end_with_a_document(fake: Fake, capsys: pytest.CaptureFixture[str]) -> None:
    fake.effect = signal.SIGTERM
    assert cli.main(["parity", "--json"]) == 143
    assert json.loads(capsys.readouterr().out) == {"error": "terminated", "type": "Terminated"}


def test_global_flags_go_anywhere(fake: Fake) -> None:
    assert cli.main(["--json", "parity", "--count", "3", "--blas", "bundled"]) == 0
    assert fake.args is not None
    assert (fake.args.json, fake.args.debug, fake.args.blas, fake.args.count) == (True, False, "bundled", 3)


@pytest.mark.parametrize(
    ("line", "named"),
    [
        (["nope"], "unknown 'nope'; known: bench, chat"),
        (["parity", "--coun", "3"], "--coun"),
        (["parity", "--count", "x"], "invalid int value"),
        (["models", "--blas", "bundled"], "--blas='bundled' is not allowed"),
        (["parity", "--blas", "mkl"], "allowed: auto, bundled, openblas"),
    ],
)
def test_bad_command_lines(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], line: list[str], named: str
) -> None:
    if line[0] != "nope":
        monkeypatch.setattr(cli, "load_command", lambda name: Fake(0))
    assert cli.main(line) == 2
    err = capsys.readouterr().err
    assert named in err
    assert err.count("\n") == 1


def test_blas_flag_beats_environment_beats_default(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    monkeypatch.setattr(cli, "use_blas", lambda name: asked.append(name) or name)
    monkeypatch.setitem(commands.BLAS_DEFAULT, "bench", "auto")
    monkeypatch.setenv(cli.BLAS_ENV, "bundled")
    cli._choose_blas("bench", "openblas")
    cli._choose_blas("bench", None)
    monkeypatch.delenv(cli.BLAS_ENV)
    cli._choose_blas("bench", None)
    assert asked == ["openblas", "bundled", "auto"]
    assert cli._choose_blas("models", None) is None


def test_overview_lists_every_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["--help"]) == 0
    out = capsys.readouterr().out
    for name in commands.COMMANDS:
        assert f"  {name} " in out
    assert cli.main([]) == 2


def parsers(parser: argparse.ArgumentParser) -> Iterator[argparse.ArgumentParser]:
    """A parser and those of its actions; an action that is not built has nothing to show."""
    yield parser
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            unbuilt = {choice.dest for choice in action._choices_actions if choice.help == "not built yet"}
            for name, inner in action.choices.items():
                if name not in unbuilt:
                    yield from parsers(inner)


@pytest.mark.parametrize("name", commands.COMMANDS)
def test_help_shows_examples_that_parse(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        cli.main([name, "--help"])
    assert end.value.code == 0
    assert commands.load_command(name).EXAMPLE.splitlines()[0] in capsys.readouterr().out
    whole = cli.parser_of(name)
    for parser in parsers(whole):
        lines = [line.strip() for line in (parser.epilog or "").split("\n\n")[0].splitlines()]
        assert (lines[:1], len(lines) > 1) == (["example:"], True), f"{parser.prog} --help shows no example"
        for line in lines[1:]:
            assert line.startswith(parser.prog), line
            _, rest = cli._split_global_flags(shlex.split(line)[2:])
            whole.parse_args(rest)


@pytest.mark.parametrize("name", ["doctor", "models"])
def test_command_in_a_process_of_its_own(name: str) -> None:
    line = [sys.executable, "-m", "lab.cli", name, "--json"]
    done = subprocess.run(line, cwd=ROOT, check=True, capture_output=True, text=True)
    assert json.loads(done.stdout)  # the document and nothing else; the text is on stderr
    assert done.stderr


class Machine:
    key, device, blas, compiler = "linux-x86_64-cpu-bundled", "cpu", "bundled", None


def test_doctor_names_the_cure() -> None:
    found = doctor.findings(Machine(), openblas=None, nvidia=True, memory_free=10**9, disk_free=10**9)
    cures = {finding.cure for finding in found}
    assert {"apt-get install libopenblas0-pthread", "apt-get install g++", "make setup EXTRA=cuda"} <= cures
    assert any("memory" in finding.what for finding in found)
    assert any("disk" in finding.what for finding in found)


def test_doctor_has_nothing_to_say_about_a_good_mac() -> None:
    mac = Machine()
    mac.key, mac.device, mac.blas, mac.compiler = "darwin-arm64-apple-m4", "metal", "none", "/usr/bin/c++"
    assert doctor.findings(mac, openblas=None, nvidia=False, memory_free=10**11, disk_free=10**11) == ()


def test_doctor_names_a_gpu_by_what_is_known_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "_version", lambda name: "0.32.4" if name == "mlx-cuda-13" else None)
    gpu = {"accelerator": "NVIDIA H200", "accelerator_bytes": 150_800_000_000, "driver": "580.159.04"}
    assert doctor.accelerator_line(gpu) == "NVIDIA H200, 150.8 GB, driver 580.159.04, mlx-cuda-13 0.32.4"
    assert doctor.accelerator_line(gpu | {"driver": None}) == "NVIDIA H200, 150.8 GB, mlx-cuda-13 0.32.4"
    cuda = Machine()
    cuda.key, cuda.device, cuda.blas, cuda.compiler = "linux-x86_64-cuda-sm90", "cuda", "none", "/usr/bin/g++"
    found = doctor.findings(cuda, openblas=None, nvidia=True, memory_free=10**11, disk_free=10**11)
    assert {finding.what for finding in found} == {"first use of a shape", "batches of such models"}


def test_output_channels(capsys: pytest.CaptureFixture[str]) -> None:
    plain, machine = console.Output(as_json=False), console.Output(as_json=True)
    plain.line("a")
    plain.document({"x": 1})
    machine.line("b")
    machine.document({"y": 2})
    plain.document({"z": 3}, always=True)
    out, err = capsys.readouterr()
    assert out.splitlines() == ["a", '{"y": 2}', '{"z": 3}']
    assert err == "b\n"
    with pytest.raises(ValueError, match="JSON"):
        machine.document({"bad": float("nan")})


def test_progress_draws_only_when_something_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    stderr = io.StringIO()
    monkeypatch.setattr(sys, "stderr", stderr)
    with console.progress_callback():
        pass
    assert stderr.getvalue() == ""
    with console.progress_callback() as progress:
        progress("unpacking", 0, None)
        progress("fetching", 1, 2)
        progress("fetching", 2, 2)
    assert "fetching" in stderr.getvalue()
    assert stderr.getvalue().count("100%") == 2


@pytest.mark.parametrize(
    ("count", "text"), [(0, "0 B"), (999, "999 B"), (138_100_000, "138.1 MB"), (2 * 10**9, "2.0 GB")]
)
def test_size(count: int, text: str) -> None:
    assert console.size(count) == text
