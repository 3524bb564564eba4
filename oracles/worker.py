"""The child process: one stack in one configuration, `python -m oracles.worker '<StackConfig as JSON>'`.

Protocol: one JSON document a line. The child first says {"ok": true} or why it cannot start, then answers each request
{"kind", "fields", "out"} with {"ok": true, "doc", "tensors"} or {"ok": false, "kind", "text"}. Arrays go to the
safetensors file `out`. The child's own stdout is moved to stderr, so that a chatty library cannot break the protocol.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
from collections.abc import Callable, Mapping
from dataclasses import asdict
from typing import IO, Any, Protocol

from engine import errors, use_blas
from oracles.contract import AnyProbe, ForwardProbe, GenerateProbe, Probe, StackConfig, TimeProbe, Trace

# Loaded only here, in the child: the two oracles must never share a process.
ADAPTERS = {
    "engine": "oracles.engine_adapter:load",
    "mlx-lm": "oracles.mlx_lm_adapter:load",
    "optiq": "oracles.optiq_adapter:load",
}
PROBES: dict[str, type] = {"probe": Probe, "generate": GenerateProbe, "time": TimeProbe, "forward": ForwardProbe}


class Stack(Protocol):
    """What an adapter's `load(StackConfig)` returns."""

    def probe(self, probe: Probe) -> Trace: ...

    def generate(self, probe: GenerateProbe) -> Trace: ...

    def time(self, probe: TimeProbe) -> Trace: ...

    def forward(self, probe: ForwardProbe) -> Trace: ...


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
    else:
        trace = stack.forward(probe)
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
        }


def serve(config: StackConfig, requests: IO[str], answers: IO[str]) -> int:
    """Load the stack, then answer until stdin ends."""
    loaded: list[Stack] = []

    def start() -> dict[str, Any]:
        use_blas(config.blas)
        module, symbol = ADAPTERS[config.stack].split(":")
        loaded.append(getattr(importlib.import_module(module), symbol)(config))
        return {"ok": True}

    def say(document: Mapping[str, Any]) -> None:
        answers.write(json.dumps(document) + "\n")
        answers.flush()

    hello = guarded(start)
    say(hello)
    if not hello["ok"]:
        return 1
    for line in requests:
        request = json.loads(line)
        say(guarded(lambda request=request: answer(loaded[0], request)))  # type: ignore[misc]
    return 0


def main() -> int:
    protocol = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    return serve(StackConfig(**json.loads(sys.argv[1])), sys.stdin, protocol)


if __name__ == "__main__":
    sys.exit(main())
