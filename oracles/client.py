"""The parent's side of a worker: start it, ask it, notice its death, end it."""

from __future__ import annotations

import contextlib
import json
import os
import select
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from types import TracebackType
from typing import Any

import oracles
from engine import errors
from oracles.contract import AnyProbe, OracleCrashed, OracleRefused, StackConfig, Trace
from oracles.live import require_scheme
from oracles.recipe import Form, Recipe, form_folder
from oracles.worker import probe_request

__all__ = ["Worker", "child_environment", "require_scheme"]

STDERR_TAIL_CHARS = 2000
EXIT_WAIT_S = 10.0
THREAD_VARIABLES = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS")


def child_environment(config: StackConfig) -> dict[str, str]:
    """The environment of a worker: the BLAS, its threads, fusion on or off, no network."""
    env = dict(os.environ)
    env["FRONTIER_BLAS"] = config.blas
    cores = len(os.sched_getaffinity(0)) if sys.platform.startswith("linux") else os.cpu_count() or 1
    for name in THREAD_VARIABLES:
        env.setdefault(name, str(cores))
    env.pop("MLX_DISABLE_COMPILE", None)
    if not config.compile:
        env["MLX_DISABLE_COMPILE"] = "1"
    env.update(HF_HUB_OFFLINE="1", TRANSFORMERS_OFFLINE="1", TOKENIZERS_PARALLELISM="false")
    root = str(Path(oracles.__file__).resolve().parent.parent)
    env["PYTHONPATH"] = os.pathsep.join(filter(None, (root, env.get("PYTHONPATH"))))
    return env


class Worker:
    """One stack, one configuration at a time, in a child process of its own.

    `Worker(config)` starts it and waits until its model is loaded (model "" loads nothing); `load` replaces the
    configuration. Raises `OracleRefused` when the stack cannot honour
    the configuration or a probe (the worker stays usable after a refused probe), `OracleCrashed` when the process
    dies or stays silent for `timeout_s`.
    """

    def __init__(self, config: StackConfig, *, timeout_s: float | None = None, wait: bool = True) -> None:
        self.config = config
        self._timeout_s = timeout_s
        self._folder = tempfile.TemporaryDirectory(prefix="frontier-worker-")
        self._stderr_path = Path(self._folder.name) / "stderr.txt"
        self._buffer = b""
        self._answers = 0
        self._ready = False
        # A file, not a pipe: nobody has to drain it while the parent waits for an answer.
        with open(self._stderr_path, "wb") as stderr:
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-m", "oracles.worker", json.dumps(config.as_dict())],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=stderr,
                env=child_environment(config),
            )
        if wait:
            self.wait_ready()

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def closed(self) -> bool:
        """True once `close` was called; a worker that could not start closes itself."""
        return self._process.stdin is None or self._process.stdin.closed

    def wait_ready(self) -> None:
        """Wait until the stack is loaded. Called by the constructor unless `wait=False`."""
        if self._ready:
            return
        try:
            self._read_answer()
        except errors.FrontierError:
            self.close()
            raise
        self._ready = True

    def probe(self, probe: AnyProbe) -> Trace:
        """Run one probe and return its arrays and document."""
        self.ask(probe)
        return self.answer()

    def ask(self, probe: AnyProbe) -> None:
        """Send a probe without waiting, so that two workers can run at the same time; `answer` collects it."""
        self._send(probe_request(probe))

    def load(self, config: StackConfig) -> None:
        """Replace what is loaded by another configuration of the same process; after a refusal nothing is loaded."""
        self.ask_load(config)
        self.answer()

    def ask_load(self, config: StackConfig) -> None:
        """`load` without waiting; `answer` collects it."""
        if config.process != self.config.process:
            raise errors.InvalidValue("process", config.process, str(self.config.process))
        self._send({"kind": "load", "fields": config.as_dict()})
        self.config = config

    def build(self, recipe: Recipe, form: Form, folder: Path) -> Mapping[str, Any]:
        """Have mlx-lm's classes write a form of a recipe: see `oracles.build_adapter`. Any "mlx-lm" worker can."""
        self._send({"kind": "build", "fields": {"recipe": asdict(recipe), "form": asdict(form), "folder": str(folder)}})
        return self.answer().doc

    def parameters(self) -> Mapping[str, str]:
        """What the loaded model holds: parameter -> dtype, shape and sha256. mlx-lm's side only."""
        self._send({"kind": "parameters", "fields": {}})
        return self.answer().doc

    def evaluate(
        self, model: Path, *, pairs: Sequence[tuple[str, str]] = (), prompts: Sequence[tuple[str, int, list[str]]] = ()
    ) -> Mapping[str, Any]:
        """What `mlx_lm.evaluate` says of texts: see `oracles.mlx_lm_evaluate_adapter`. A "mlx-lm" worker with nothing
        loaded can."""
        self._send({"kind": "evaluate", "fields": {"model": str(model), "pairs": pairs, "prompts": prompts}})
        return self.answer().doc

    def make(self, recipe: Recipe, form: Form, root: Path | None = None) -> Path:
        """The folder of that form of the recipe, built unless it is there."""
        folder = form_folder(recipe, form, root)
        if not folder.is_dir():
            self.build(recipe, form, folder)
        return folder

    def _send(self, request: dict[str, Any]) -> None:
        if self.closed:
            raise OracleCrashed(f"the {self.config.stack} worker was closed")
        self.wait_ready()
        assert self._process.stdin is not None
        self._answers += 1
        line = json.dumps(request | {"out": str(self._out_path())}) + "\n"
        try:
            self._process.stdin.write(line.encode())
            self._process.stdin.flush()
        except BrokenPipeError as error:
            raise self._crashed("took no request") from error

    def answer(self) -> Trace:
        """The answer to what was asked last."""
        out = self._out_path()
        document = self._read_answer()
        return Trace(tensors=_load(out) if document["tensors"] else {}, doc=document["doc"])

    def stderr_tail(self) -> str:
        """The last of what the child wrote to stderr (and stdout)."""
        text = self._stderr_path.read_text(encoding="utf-8", errors="replace") if self._stderr_path.exists() else ""
        return text[-STDERR_TAIL_CHARS:].strip()

    def close(self) -> None:
        """End the child and remove its files. Safe to call twice."""
        process = self._process
        if process.stdin is not None and not process.stdin.closed:
            with contextlib.suppress(BrokenPipeError):  # the child died with a request unread
                process.stdin.close()
        try:
            process.wait(timeout=EXIT_WAIT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        if process.stdout is not None:
            process.stdout.close()
        self._folder.cleanup()

    def __enter__(self) -> Worker:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is not None:
            self._process.kill()
        self.close()

    def _out_path(self) -> Path:
        return Path(self._folder.name) / f"answer-{self._answers}.safetensors"

    def _read_answer(self) -> dict[str, Any]:
        document = json.loads(self._read_line())
        if document["ok"]:
            return dict(document)
        text = document["text"] if document["ours"] else f"{document['kind']}: {document['text']}"
        if self.config.stack == "engine" and not document["ours"]:
            text = f"{text} ({document['where']})"
        raise OracleRefused(f"{self.config.stack}: {text}", kind=document["kind"])

    def _read_line(self) -> bytes:
        assert self._process.stdout is not None
        descriptor = self._process.stdout.fileno()
        deadline = None if self._timeout_s is None else time.monotonic() + self._timeout_s
        while b"\n" not in self._buffer:
            left = None if deadline is None else max(0.0, deadline - time.monotonic())
            if not select.select([descriptor], [], [], left)[0]:
                self._process.kill()
                raise self._crashed(f"did not answer within {self._timeout_s} s")
            block = os.read(descriptor, 1 << 16)
            if not block:
                raise self._crashed("died")
            self._buffer += block
        line, self._buffer = self._buffer.split(b"\n", 1)
        return line

    def _crashed(self, what: str) -> OracleCrashed:
        code = self._process.wait(timeout=EXIT_WAIT_S)
        tail = self.stderr_tail() or "(nothing on stderr)"
        return OracleCrashed(f"the {self.config.stack} worker {what} (exit code {code}); stderr ends with:\n{tail}")


def _load(path: Path) -> dict[str, Any]:
    """Read a child's arrays into memory; MLX loads lazily and the file goes away."""
    import mlx.core as mx

    loaded = mx.load(str(path))
    assert isinstance(loaded, dict)
    mx.eval(loaded)
    path.unlink()
    return loaded
