"""What the engine's rows and mlx-lm's BatchGenerator compute, forward by forward, in a process that has both.

`python batch_forwards.py FOLDER CHUNK LAYOUT` says why mlx-lm has no such batch, if it has none; else it reads
schedules from its standard input and prints one JSON document each: where the two differ. LAYOUT: how rows run in place
of the mode's own choice, or "" for that. Of every forward are compared: the shape of its ids, of every attention the
shapes of queries and keys and its mask, and for recurrent states which tokens count; and of every step the logits.
"""

from __future__ import annotations

import hashlib
import importlib
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np

import engine.api
from engine import Request, SamplingParams, load
from engine.graph.decoder import Decoder
from engine.graph.oracle_batch import NoBatch, no_oracle_batch
from engine.kv.batched import BatchedState
from engine.method.decode import Decode

# Events of the forward that is being built; forwards: (stage, events), stage "prompt" or "step".
_now: list[Any] = []
_forwards: list[tuple[str, list[Any]]] = []
_stage = ["step"]


def _mask(mask: Any) -> Any:
    """A mask by its shape and values; those of floats by where they hide."""
    if mask is None or isinstance(mask, str):
        return mask
    seen = np.array(mask if mask.dtype == mx.bool_ else mask > mx.finfo(mask.dtype).min)
    return [list(mask.shape), str(mask.dtype), hashlib.sha256(seen.tobytes()).hexdigest()[:12]]


def _watch(owner: Any, name: str, note: Callable[..., Any]) -> None:
    inner = getattr(owner, name)

    def watched(*args: Any, **kwargs: Any) -> Any:
        result = inner(*args, **kwargs)
        event = note(result, *args, **kwargs)
        # mlx-lm asks once a forward which tokens count, the engine for every layer.
        if event[0] == "attention" or event not in _now:
            _now.append(event)
        return result

    setattr(owner, name, watched)


def _staged(owner: Any, name: str, stage: str) -> None:
    inner = getattr(owner, name)

    def run(*args: Any, **kwargs: Any) -> Any:
        _stage[0] = stage
        return inner(*args, **kwargs)

    setattr(owner, name, run)


def _counted(owner: Any, name: str, ids: Callable[..., Any]) -> None:
    """Each call is a forward."""
    inner = getattr(owner, name)

    def forward(*args: Any, **kwargs: Any) -> Any:
        _now.clear()
        shape = list(ids(*args, **kwargs).shape)
        result = inner(*args, **kwargs)
        _forwards.append((_stage[0], [shape, *sorted(_now, key=lambda event: event[0])]))
        return result

    setattr(owner, name, forward)


def watch(model: Any) -> None:
    """Note what both sides do from now on."""
    generate = importlib.import_module("mlx_lm.generate")
    arrays = importlib.import_module("mlx_lm.models.cache").ArraysCache

    def attention(_: Any, q: Any, k: Any, v: Any, **how: Any) -> Any:
        # Some modules of mlx-lm repeat the heads of keys, so that their number says nothing of how rows lie.
        shapes = [[x.shape[0], *x.shape[2:]] for x in (k, v)]
        return ["attention", list(q.shape), *shapes, _mask(how.get("mask"))]

    _watch(mx.fast, "scaled_dot_product_attention", attention)
    _watch(arrays, "make_mask", lambda mask, cache, _: ["state", *_counts(mask, cache.lengths)])
    _watch(
        BatchedState,
        "padding",
        lambda found, *_: ["state", *(_counts(*found) if found is not None else _counts(None, None))],
    )
    _staged(generate.PromptProcessingBatch, "prompt", "prompt")
    _staged(generate.GenerationBatch, "_step", "step")
    _staged(Decode, "prefill", "prompt")
    _staged(Decode, "step", "step")
    _counted(type(model), "__call__", lambda _, ids, *__, **___: ids)
    _counted(Decoder, "forward_hidden", lambda _, ids, *__, **___: ids)


def _counts(mask: Any, lengths: Any) -> list[Any]:
    return [_mask(mask), None if lengths is None else lengths.tolist()]


def theirs(model: Any, chunk: int, prompts: list[list[int]], joins: list[int], limits: list[int]) -> list[Any]:
    """Logits [limit, V] of every row of mlx-lm's BatchGenerator; rows join before the turn that `joins` names."""
    batch = importlib.import_module("mlx_lm.generate").BatchGenerator(
        model, completion_batch_size=len(prompts), prefill_batch_size=len(prompts), prefill_step_size=chunk
    )
    kept: list[list[Any]] = [[] for _ in prompts]

    def keep(row: int) -> Callable[[Any, Any], Any]:
        def processor(_: Any, logits: Any) -> Any:
            kept[row].append(logits[0])
            return logits

        return processor

    turn, left = 0, len(prompts)
    while left:
        for i in (i for i, join in enumerate(joins) if join == turn):
            batch.insert([prompts[i]], [limits[i]], logits_processors=[[keep(i)]])
        left -= sum(answer.finish_reason is not None for answer in batch.next()[1])
        turn += 1
    batch.close()
    return [mx.stack(rows[:limit]) for rows, limit in zip(kept, limits, strict=True)]


def ours(running: Any, prompts: list[list[int]], joins: list[int], limits: list[int]) -> list[Any]:
    """The same of the engine."""
    handles: dict[int, Any] = {}
    turn = 0
    while len(handles) < len(prompts) or any(handle.state == "running" for handle in handles.values()):
        for i in (i for i, join in enumerate(joins) if join == turn):
            sampling = SamplingParams(max_tokens=limits[i], ignore_eos=True)
            request = Request(prompt=tuple(prompts[i]), sampling=sampling, taps=("logits",), delivery="collect")
            handles[i] = running.submit(request)
        running.step()
        turn += 1
    return [handles[i].result().taps["logits"] for i in range(len(prompts))]


def _drained() -> dict[str, list[Any]]:
    found = {stage: [events for at, events in _forwards if at == stage] for stage in ("prompt", "step")}
    _forwards.clear()
    return found


def _difference(left: dict[str, list[Any]], right: dict[str, list[Any]]) -> list[Any]:
    """The first forward in which they differ; [] for none."""
    for stage in left:
        for i, (a, b) in enumerate(zip(left[stage], right[stage], strict=False)):
            if a != b:
                return [stage, i, a, b]
        if len(left[stage]) != len(right[stage]):
            return [stage, len(left[stage]), len(right[stage])]
    return []


def main() -> None:
    folder, chunk, layout = sys.argv[1], int(sys.argv[2]), sys.argv[3]
    without: list[NoBatch] = []

    def forced(
        _asked: str, _device: str, _blas: str, spec: Any, kv: Any, family: str, _budgets: Any, _prefixes: bool
    ) -> tuple[str, str]:
        found = no_oracle_batch(spec, kv, family)
        without.extend([] if found is None else [found])
        return "composition", layout

    if layout:
        vars(engine.api)["modes_of"] = forced
    with load(folder, prefill_chunk=chunk, drive="manual", ops="mlx", batch_mode="composition") as running:
        print(json.dumps({"without": without[0].why if without else ""}), flush=True)
        if without:
            return
        model, _ = importlib.import_module("mlx_lm.utils").load_model(Path(folder), strict=True)
        watch(model)
        for line in sys.stdin:
            case = json.loads(line)
            _forwards.clear()
            right = theirs(model, chunk, case["prompts"], case["joins"], case["limits"])
            expected = _drained()
            left = ours(running, case["prompts"], case["joins"], case["limits"])
            found = _drained()
            gaps = [
                float(mx.abs(a.astype(mx.float32) - b.astype(mx.float32)).max())
                for a, b in zip(left, right, strict=True)
            ]
            told = {"forwards": sum(map(len, expected.values())), "first": _difference(found, expected), "gaps": gaps}
            print(json.dumps(told), flush=True)


main()
