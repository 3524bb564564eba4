"""This project's engine as a stack, through its public door only. Imported only in a worker's process."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from importlib import metadata
from typing import Any

from engine import LEVERS, CacheLayer, Generation, Request, SamplingParams, errors, machine, parse_kv
from engine import load as load_engine
from oracles.batch_timing import timed_busy, timed_load, timed_rows
from oracles.contract import (
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
from oracles.engine_batch import EngineBatch
from oracles.host_timing import timed_host
from oracles.timing import begin, timed, timed_caches, timed_decode, timed_forwards

DISABLE = "MLX_DISABLE_COMPILE"
PREFIX_CACHE = "prefix_cache"


def load(config: StackConfig) -> EngineStack:
    """The stack "engine"; what it cannot honour is its own typed error."""
    return EngineStack(config)


class EngineStack:
    def __init__(self, config: StackConfig) -> None:
        self.config = config
        levers = engine_fields(config.levers)
        levers |= {"dtype": config.dtype, "kv": config.kv, "prefill_chunk": config.chunk, "drive": config.drive}
        self.engine = load_engine(config.model, **levers)
        self.filled: tuple[tuple[int, ...], Any, float] = ((), None, 0.0)
        self.scored: dict[tuple[int, ...], Any] = {}

    def probe(self, probe: Probe) -> Trace:
        if probe.served:
            return self._row_beside(probe)
        how: dict[str, Any] = {"layers": "layers" in probe.want, "lens": probe.lens}
        if probe.sizes is not None:
            how |= {"sizes": probe.sizes}
        else:
            how |= {"chunk": self.config.chunk, "head": probe.head, "tail": probe.tail, "prefix": probe.prefix}
        traced = self.engine.trace(list(probe.token_ids), **how)
        tensors = {**traced.layers, **traced.lens}
        if "logits" in probe.want:
            tensors["logits"] = traced.logits
        doc = self._doc(traced.kv_status, traced.caches, len(probe.token_ids))
        return Trace(tensors, doc | {"kv_live": list(traced.kv_live)})

    def _row_beside(self, probe: Probe) -> Trace:
        """Rows of one group run once: what the others got is kept until they are asked for. Of the prefix cache they
        find what they have put there themselves."""
        if probe.token_ids not in self.scored:
            rows = [probe.token_ids, *probe.beside]
            self.engine.forget_prefixes()
            blocks = self.engine.score(rows, tail=probe.tail, batch=len(rows), prefix=probe.prefix)
            self.scored = {rows[block.sequence]: block for block in blocks}
        block = self.scored.pop(probe.token_ids)
        doc = self._doc(block.kv_status, block.caches, len(probe.token_ids)) | {"cached_tokens": block.cached_tokens}
        return Trace({"logits": block.logits}, doc | {"kv_live": list(block.kv_live)})

    def generate(self, probe: GenerateProbe) -> Trace:
        params = SamplingParams.from_dict(probe.sampling)
        if params.seed is None and params.temperature > 0:
            raise errors.InvalidValue("seed", None, "an integer: an unseeded run cannot be compared")
        done = self.engine.generate(list(probe.token_ids), params, taps=("logprobs",))
        doc = self._doc(done.kv_status, done.caches, len(probe.token_ids))
        doc |= {"tokens": list(done.tokens), "finish_reason": done.finish_reason}
        return Trace({"logprobs": done.taps["logprobs"]}, doc)

    def time(self, probe: TimeProbe) -> Trace:
        params = SamplingParams(max_tokens=probe.max_tokens, ignore_eos=True)
        request = Request(prompt=list(probe.token_ids), sampling=params)
        handles: list[Any] = []

        def counts() -> Iterator[int]:
            handles.append(self.engine.submit(request))
            for event in handles[0].events():
                yield len(event.tokens)

        times = timed_decode(counts(), probe.max_tokens)
        done = handles[0].result()
        doc = self._doc(done.kv_status, done.caches, len(probe.token_ids)) | ahead(done)
        return Trace({}, doc | times | {"kv_bytes": sum(layer.kv_bytes for layer in done.caches)})

    def forward(self, probe: ForwardProbe) -> Trace:
        last: list[Any] = []

        def work(fresh: Any) -> dict[str, Any]:
            def one() -> Any:
                last[:] = [fresh()]
                return last[0]

            return timed_forwards(one, probe)

        times = self.engine.run_graph(work)
        caches = last[0].describe()
        doc = self._doc(last[0].kv_status(), caches, len(probe.token_ids))
        return Trace({}, doc | times | {"kv_bytes": sum(layer.kv_bytes for layer in caches)})

    def host(self, probe: HostProbe) -> Trace:
        last: list[Any] = []

        def work(fresh: Any) -> dict[str, Any]:
            last[:] = [fresh()]
            return timed_host(last[0], probe)

        times = self.engine.run_graph(work)
        return Trace({}, self._doc(last[0].kv_status(), last[0].describe(), len(probe.token_ids)) | times)

    def batch(self, probe: BatchProbe) -> Trace:
        """In an engine of its own, whose turns are counted here."""
        how: dict[str, Any] = {"dtype": self.config.dtype, "kv": self.config.kv, "prefill_chunk": self.config.chunk}
        how |= engine_fields(self.config.levers)
        with load_engine(self.config.model, drive="manual", batch=len(probe.rows), **how) as engine:
            handles: dict[int, Any] = {}
            turn, idle, taps = 0, False, ("logprobs", "logits")
            while not idle or len(handles) < len(probe.rows):
                for i in (i for i, join in enumerate(probe.joins) if join == turn):
                    sampling = SamplingParams(max_tokens=probe.limits[i], ignore_eos=True)
                    request = Request(prompt=probe.rows[i], sampling=sampling, taps=taps, delivery="collect")
                    handles[i] = engine.submit(request)
                idle = not engine.step()
                turn += 1
            rows = [handles[i].result() for i in range(len(probe.rows))]
        doc = self._doc(rows[0].kv_status, rows[0].caches, len(probe.token_ids))
        tensors = {f"row.{i}": row.taps["logprobs"] for i, row in enumerate(rows)}
        tensors |= {f"logits.{i}": row.taps["logits"] for i, row in enumerate(rows)}
        return Trace(tensors, doc | {"tokens": [token for row in rows for token in row.tokens]})

    def cache(self, probe: CacheProbe) -> Trace:
        asked = parse_kv(self.config.kv)

        def work(fresh: Any) -> tuple[Any, dict[str, Any]]:
            if self.filled[0] != probe.token_ids:
                run, start = fresh(), time.perf_counter()
                run.fill(probe.token_ids, self.config.chunk)
                self.filled = (probe.token_ids, run, time.perf_counter() - start)
            converts = asked.kind != "native" and not asked.on_write
            return timed_caches(self.filled[1], self.filled[2], probe, converts=converts)

        last, times = self.engine.run_graph(work)
        caches = last.describe()
        doc = self._doc(last.kv_status(), caches, len(probe.token_ids))
        return Trace({}, doc | times | {"kv_bytes": sum(layer.kv_bytes for layer in caches)})

    def rows(self, probe: RowsProbe | LoadProbe) -> Trace:
        if isinstance(probe, LoadProbe):
            last, times = timed_load(lambda: EngineBatch(self.engine), probe)
        else:
            last, times = timed_rows(lambda: EngineBatch(self.engine), probe)
        return self._batch_trace(last, times, len(probe.token_ids))

    def busy(self, probe: BusyProbe) -> Trace:
        last, times = timed_busy(lambda: EngineBatch(self.engine), probe, self.config.chunk)
        return self._batch_trace(last, times, len(probe.token_ids))

    def draw(self, probe: DrawProbe) -> Trace:
        """Timed as one: from the first request to the last token of all."""
        fields = dict(self.config.sampling)
        if not fields.get("temperature"):
            raise errors.InvalidValue("sampling", fields, "a temperature above 0: nothing else is drawn")
        begin()
        start = time.perf_counter()
        handles = []
        for i in range(probe.count):
            params = SamplingParams(max_tokens=probe.limit, ignore_eos=True, seed=probe.seed + i, **fields)
            request = Request(prompt=list(probe.token_ids), sampling=params, delivery="collect")
            handles.append(self.engine.submit(request))
        done = [handle.result() for handle in handles]
        ttft_s = sum(each.timing.ttft_ms for each in done) / probe.count / 1e3
        times = timed(ttft_s, time.perf_counter() - start, probe.count * probe.limit)
        doc = self._doc(done[0].kv_status, done[0].caches, len(probe.token_ids)) | times
        doc["levers"] |= {"sampler": done[0].plan.sampler}
        doc |= {"kv_bytes": sum(layer.kv_bytes for layer in done[0].caches)}
        return Trace({}, doc | {"drawn": [list(each.tokens) for each in done]})

    def _batch_trace(self, last: EngineBatch, times: dict[str, Any], prompt_tokens: int) -> Trace:
        """caches and kv_bytes: of the first row."""
        last.close()
        done = last.handles[0].result()
        doc = self._doc(done.kv_status, done.caches, prompt_tokens) | ahead(done)
        return Trace({}, doc | times | {"kv_bytes": sum(layer.kv_bytes for layer in done.caches)})

    def parameters(self) -> dict[str, str]:
        raise errors.NotBuilt("a list of the engine's parameters", "its logits are compared")

    def close(self) -> None:
        self.engine.close()

    def _doc(self, kv_status: str, caches: Sequence[CacheLayer], prompt_tokens: int) -> dict[str, Any]:
        return {
            "stack": self.config.stack,
            "versions": {"mlx": metadata.version("mlx"), "mlx-frontier": _own_version()},
            "machine": machine().key,
            "kv_status": kv_status,
            "caches": [asdict(layer) for layer in caches],
            "prompt_tokens": prompt_tokens,
            "levers": self.engine.live_levers() | {"mlx_compile": "off" if DISABLE in os.environ else "on"},
        }


def ahead(done: Generation) -> dict[str, int]:
    """How many tokens were fed beyond what was asked: in a batch as mlx-lm's the last one too."""
    held = max((layer.offset for layer in done.caches), default=0)
    fed_last = done.plan.rows.endswith("batched") and held == done.usage.prompt_tokens + len(done.tokens)
    return {"ahead": int(fed_last)}


def engine_fields(levers: Sequence[tuple[str, str]]) -> dict[str, Any]:
    """Levers and a prefix cache's bytes as fields of the engine's configuration, numbers where a default is one."""
    numbers = [PREFIX_CACHE, *(name for name, lever in LEVERS.items() if isinstance(lever.default, int))]
    return {name: int(value) if name in numbers else value for name, value in levers}


def _own_version() -> str:
    try:
        return metadata.version("mlx-frontier")
    except metadata.PackageNotFoundError:
        return "source tree"
