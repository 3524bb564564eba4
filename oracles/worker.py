"""The child process: one stack, one configuration at a time, `python -m oracles.worker '<StackConfig as JSON>'`.

Protocol: one JSON document a line. The child first says {"ok": true} or why it cannot start, then answers each request
{"kind", "fields", "out"} with {"ok": true, "doc", "tensors"} or {"ok": false, "kind", "text"}. Arrays go to the
safetensors file `out`. The child's own stdout is moved to stderr, so that a chatty library cannot break the protocol.
A configuration with model "" starts a child that has nothing loaded yet; "load" loads another configuration of the
same process, "build" writes a tiny model of one of mlx-lm's modules, "parameters" lists what is loaded, "evaluate" asks
the model class behind `mlx_lm.evaluate`.
"""

from __future__ import annotations

import json
import os
import sys
import traceback
from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import IO, Any, Protocol

from engine import errors, use_blas
from oracles.contract import (
    AnyProbe,
    BatchProbe,
    BusyProbe,
    CacheProbe,
    DrawProbe,
    ForwardProbe,
    GenerateProbe,
    HostProbe,
    LoadProbe,
    Probe,
    RowsProbe,
    StackConfig,
    TimeProbe,
    Trace,
)
from oracles.recipe import Form, recipe_from, resolve

# Loaded only here, in the child: the two oracles must never share a process.
ADAPTERS = {
    "engine": "oracles.engine_adapter:load",
    "mlx-lm": "oracles.mlx_lm_adapter:load",
    "optiq": "oracles.optiq_adapter:load",
}
WHERE_FRAMES = 3
BUILDER = "oracles.build_adapter:build"
EVALUATOR = "oracles.mlx_lm_evaluate_adapter:evaluate"
PROBES: dict[str, type] = {
    "probe": Probe,
    "generate": GenerateProbe,
    "time": TimeProbe,
    "forward": ForwardProbe,
    "host": HostProbe,
    "batch": BatchProbe,
    "cache": CacheProbe,
    "rows": RowsProbe,
    "busy": BusyProbe,
    "requests": LoadProbe,
    "draw": DrawProbe,
}


class Stack(Protocol):
    """What an adapter's `load(StackConfig)` returns."""

    def probe(self, probe: Probe) -> Trace: ...

    def generate(self, probe: GenerateProbe) -> Trace: ...

    def time(self, probe: TimeProbe) -> Trace: ...

    def forward(self, probe: ForwardProbe) -> Trace: ...

    def host(self, probe: HostProbe) -> Trace: ...

    def batch(self, probe: BatchProbe) -> Trace: ...

    def cache(self, probe: CacheProbe) -> Trace: ...

    def rows(self, probe: RowsProbe | LoadProbe) -> Trace: ...

    def busy(self, probe: BusyProbe) -> Trace: ...

    def draw(self, probe: DrawProbe) -> Trace: ...

    def parameters(self) -> dict[str, str]: ...

    def close(self) -> None: ...


def probe_request(probe: AnyProbe) -> dict[str, Any]:
    """The request document of a probe, without `out`."""
    kind = next(name for name, cls in PROBES.items() if isinstance(probe, cls))
    return {"kind": kind, "fields": asdict(probe)}


def parse_probe(request: Mapping[str, Any]) -> AnyProbe:
    """The inverse of `probe_request`; an unknown kind raises `errors.UnknownField`."""
    if request["kind"] not in PROBES:
        raise errors.UnknownField("request kind", str(request["kind"]), PROBES)
    fields = {name: tuple(v) if isinstance(v, list) else v for name, v in request["fields"].items()}
    probe: AnyProbe = PROBES[request["kind"]](**fields)
    return probe


def answer(stack: Stack, request: Mapping[str, Any]) -> dict[str, Any]:
    """Run one request and store its arrays."""
    probe = parse_probe(request)
    if isinstance(probe, Probe):
        trace = stack.probe(probe)
    elif isinstance(probe, GenerateProbe):
        trace = stack.generate(probe)
    elif isinstance(probe, TimeProbe):
        trace = stack.time(probe)
    elif isinstance(probe, BatchProbe):
        trace = stack.batch(probe)
    elif isinstance(probe, ForwardProbe):
        trace = stack.forward(probe)
    elif isinstance(probe, HostProbe):
        trace = stack.host(probe)
    elif isinstance(probe, CacheProbe):
        trace = stack.cache(probe)
    elif isinstance(probe, RowsProbe | LoadProbe):
        trace = stack.rows(probe)
    elif isinstance(probe, DrawProbe):
        trace = stack.draw(probe)
    else:
        trace = stack.busy(probe)
    if trace.tensors:
        import mlx.core as mx

        mx.save_safetensors(request["out"], dict(trace.tensors))
    return {"ok": True, "doc": dict(trace.doc), "tensors": bool(trace.tensors)}


def guarded(work: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """Run `work`; whatever a stack raises, `sys.exit` included, becomes an answer and the child lives on."""
    try:
        return work()
    except (Exception, SystemExit) as error:  # noqa: BLE001 - the process boundary: a foreign stack may raise anything
        text = str(error) or repr(error)
        return {
            "ok": False,
            "kind": type(error).__name__,
            "text": text,
            "ours": isinstance(error, errors.FrontierError),
            "where": _where(error),
        }


def _where(error: BaseException) -> str:
    """The lines that an exception went through last, innermost first."""
    frames = reversed(traceback.extract_tb(error.__traceback__)[-WHERE_FRAMES:])
    return " < ".join(f"{Path(frame.filename).name}:{frame.lineno}" for frame in frames)


class Host:
    """What one child holds: at most one loaded stack."""

    def __init__(self, config: StackConfig) -> None:
        self.config = config
        self.stack: Stack | None = None

    def start(self) -> dict[str, Any]:
        use_blas(self.config.blas)
        load = resolve(ADAPTERS[self.config.stack])
        if self.config.model:
            self.stack = load(self.config)
        return {"ok": True}

    def handle(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """Answer one request; after a refused "load" nothing is loaded."""
        if request["kind"] == "load":
            return self._load(StackConfig(**request["fields"]))
        if request["kind"] == "build":
            return self._build(request["fields"])
        if request["kind"] == "evaluate":
            return self._evaluate(request["fields"])
        if self.stack is None:
            raise errors.InvalidValue("model", "", "a model folder: nothing is loaded in this worker")
        if request["kind"] == "parameters":
            return {"ok": True, "doc": self.stack.parameters(), "tensors": False}
        return answer(self.stack, request)

    def _load(self, config: StackConfig) -> dict[str, Any]:
        if config.process != self.config.process:
            raise errors.InvalidValue("process", config.process, str(self.config.process))
        if config.stack == "optiq" and self.stack is not None:
            raise errors.NotBuilt("a second configuration in an optiq process", "its KV plan is global and final")
        previous, self.stack = self.stack, None
        if previous is not None:
            previous.close()
        self.config = config
        self.stack = resolve(ADAPTERS[config.stack])(config)
        return {"ok": True, "doc": {}, "tensors": False}

    def _evaluate(self, fields: Mapping[str, Any]) -> dict[str, Any]:
        if self.config.stack != "mlx-lm" or self.config.model:
            raise errors.InvalidValue(
                "stack", self.config.process, "mlx-lm with nothing loaded: it loads models itself"
            )
        return {"ok": True, "doc": resolve(EVALUATOR)(**fields), "tensors": False}

    def _build(self, fields: Mapping[str, Any]) -> dict[str, Any]:
        if self.config.stack != "mlx-lm":
            raise errors.InvalidValue("stack", self.config.stack, "mlx-lm, whose classes build a recipe")
        form = Form(**fields["form"])
        doc = resolve(BUILDER)(recipe_from(fields["recipe"]), form, Path(fields["folder"]))
        return {"ok": True, "doc": doc, "tensors": False}


def serve(config: StackConfig, requests: IO[str], answers: IO[str]) -> int:
    """Load the stack, then answer until stdin ends."""
    host = Host(config)

    def say(document: Mapping[str, Any]) -> None:
        answers.write(json.dumps(document) + "\n")
        answers.flush()

    hello = guarded(host.start)
    say(hello)
    if not hello["ok"]:
        return 1
    for line in requests:
        request = json.loads(line)
        say(guarded(lambda request=request: host.handle(request)))  # type: ignore[misc]
    return 0


def main() -> int:
    protocol = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    return serve(StackConfig(**json.loads(sys.argv[1])), sys.stdin, protocol)


if __name__ == "__main__":
    sys.exit(main())
