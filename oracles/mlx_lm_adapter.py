"""mlx-lm as an oracle. Only for a worker's process. Letters: L tokens of the probe, V vocabulary, N generated tokens,
D hidden size."""

from __future__ import annotations

import copy
import hashlib
import importlib
import itertools
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np
from mlx.utils import tree_flatten
from mlx_lm.models.cache import (
    ArraysCache,
    CacheList,
    ChunkedKVCache,
    KVCache,
    QuantizedKVCache,
    RotatingKVCache,
    make_prompt_cache,
)
from mlx_lm.models.deepseek_v41 import LayerCache
from mlx_lm.sample_utils import make_logits_processors, make_sampler
from mlx_lm.utils import load_config

from engine import SamplingParams, errors, machine, parse_kv
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
from oracles.drawn_adapter import load_folder
from oracles.host_timing import timed_host
from oracles.layer_tap import LayerTap
from oracles.live import kv_status, live_scheme, scheme_name
from oracles.mlx_lm_batch_adapter import AHEAD, run_batch, time_busy, time_rows
from oracles.timing import timed_caches, timed_decode, timed_forwards

# The package attribute `generate` is the function of that name; this is the module.
GENERATE = importlib.import_module("mlx_lm.generate")


def load(config: StackConfig) -> MlxLmStack:
    """The stack "mlx-lm": native or uniform KV; what mlx-lm has not is refused."""
    asked = parse_kv(config.kv)
    if asked.kind == "mixed":
        raise errors.InvalidValue("kv", config.kv, "native or uniform for mlx-lm; per-layer mixed KV is optiq's")
    each = asked.every
    if asked.on_write or (each is not None and (each.turbo or each.bits != each.value_bits)):
        raise errors.InvalidValue("kv", config.kv, "one width for mlx-lm, and its own schedule; the others are ours")
    return MlxLmStack(config, kv_bits=asked.bits, group_size=asked.group_size, start=asked.start)


class MlxLmStack:
    """mlx-lm's own model, caches, schedule, samplers and generation loop.

    `kv_bits`, `group_size`, `start` are the arguments of mlx-lm's conversion function; `distributions` are the
    packages whose versions a trace names.
    """

    def __init__(
        self,
        config: StackConfig,
        *,
        kv_bits: int | None,
        group_size: int,
        start: int,
        distributions: tuple[str, ...] = ("mlx", "mlx-lm"),
    ) -> None:
        self.config = config
        self.versions = {name: metadata.version(name) for name in distributions}
        self.model, self.model_config = load_folder(Path(config.model))
        if config.dtype != "auto":
            self.model.set_dtype({"float32": mx.float32, "bfloat16": mx.bfloat16, "float16": mx.float16}[config.dtype])
            mx.eval(self.model.parameters())
        self.kv_arguments = {"kv_bits": kv_bits, "kv_group_size": group_size, "quantized_kv_start": start}
        self.eos_ids = _eos_ids(Path(config.model))
        self.tap: LayerTap | None = None
        self.filled: tuple[tuple[int, ...], FilledCaches | None, float] = ((), None, 0.0)

    def probe(self, probe: Probe) -> Trace:
        probe.check_common()
        caches = make_prompt_cache(self.model)
        ids = probe.token_ids
        ends = list(itertools.accumulate(probe.lengths(self.config.chunk)))
        logits: list[mx.array] = []
        kv_live: list[str] = []
        if "layers" in probe.want:
            self.tap = self.tap or LayerTap(self.model.layers)
            self.tap.begin()
        for begin, end in itertools.pairwise([0, *ends]):
            kv_live += [live_scheme(describe(caches))] * (end - begin)
            out = self.model(mx.array(ids[begin:end])[None], cache=caches)[0]  # [L', V]
            GENERATE.maybe_quantize_kv_cache(caches, **self.kv_arguments)
            mx.eval(out, [cache.state for cache in caches])
            logits.append(out)
        tensors = {"logits": mx.concatenate(logits)} if "logits" in probe.want else {}
        if "layers" in probe.want and self.tap is not None:
            tensors |= self.tap.end()
        return Trace(tensors, self.doc(caches, len(ids)) | {"kv_live": kv_live})

    def generate(self, probe: GenerateProbe) -> Trace:
        params = SamplingParams.from_dict(probe.sampling)
        if params.stop or params.top_logprobs is not None:
            raise errors.InvalidValue("stop/top_logprobs", "given", "absent: tokens and logprobs are compared")
        if params.seed is None and params.temperature > 0:
            raise errors.InvalidValue("seed", None, "an integer: an unseeded run cannot be compared")
        if params.seed is not None:
            mx.random.seed(params.seed)
        caches = make_prompt_cache(self.model)
        tokens: list[int] = []
        rows: list[mx.array] = []
        finish = "length"
        for token, logprobs in self.steps(probe.token_ids, caches, params):
            tokens.append(token)
            rows.append(logprobs)
            if token in self.eos_ids and not params.ignore_eos:
                finish = "stop"
                break
        mx.eval([cache.state for cache in caches])
        doc = self.doc(caches, len(probe.token_ids)) | {"tokens": tokens, "finish_reason": finish}
        return Trace({"logprobs": mx.stack(rows)}, doc)

    def time(self, probe: TimeProbe) -> Trace:
        caches = make_prompt_cache(self.model)
        params = SamplingParams(max_tokens=probe.max_tokens, ignore_eos=True)
        times = timed_decode((1 for _ in self.steps(probe.token_ids, caches, params)), probe.max_tokens)
        doc = self.doc(caches, len(probe.token_ids)) | {"ahead": AHEAD}
        return Trace({}, doc | times | {"kv_bytes": sum(int(cache["kv_bytes"]) for cache in doc["caches"])})

    def forward(self, probe: ForwardProbe) -> Trace:
        last: list[Any] = []

        def fresh() -> Callable[[mx.array], mx.array]:
            caches = make_prompt_cache(self.model)
            last[:] = [caches]

            def forward(ids: mx.array) -> mx.array:
                logits: mx.array = self.model(ids, cache=caches)
                GENERATE.maybe_quantize_kv_cache(caches, **self.kv_arguments)
                return logits

            return forward

        times = timed_forwards(fresh, probe)
        doc = self.doc(last[0], len(probe.token_ids))
        return Trace({}, doc | times | {"kv_bytes": sum(int(cache["kv_bytes"]) for cache in doc["caches"])})

    def host(self, probe: HostProbe) -> Trace:
        caches = make_prompt_cache(self.model)
        times = timed_host(lambda ids: self.model(ids, cache=caches), probe)
        return Trace({}, self.doc(caches, len(probe.token_ids)) | times)

    def batch(self, probe: BatchProbe) -> Trace:
        return run_batch(self, probe)

    def rows(self, probe: RowsProbe | LoadProbe) -> Trace:
        return time_rows(self, probe)

    def busy(self, probe: BusyProbe) -> Trace:
        return time_busy(self, probe)

    def draw(self, probe: DrawProbe) -> Trace:
        raise errors.NotBuilt("drawn continuations of another stack", "the engine's are compared with each other")

    def cache(self, probe: CacheProbe) -> Trace:
        ids, filled, fill_s = self.filled
        if filled is None or ids != probe.token_ids:
            start = time.perf_counter()
            filled = FilledCaches(self, make_prompt_cache(self.model))
            filled.fill(probe.token_ids)
            fill_s = time.perf_counter() - start
            self.filled = (probe.token_ids, filled, fill_s)
        last, times = timed_caches(filled, fill_s, probe, converts=self.kv_arguments["kv_bits"] is not None)
        doc = self.doc(last.caches, len(probe.token_ids))
        return Trace({}, doc | times | {"kv_bytes": sum(int(cache["kv_bytes"]) for cache in doc["caches"])})

    def parameters(self) -> dict[str, str]:
        """Every parameter as loaded: its dtype, shape and the sha256 of its bytes."""
        named: dict[str, mx.array] = dict(tree_flatten(self.model.parameters(), destination={}))
        flat = {name: np.array(value.reshape(-1).view(mx.uint8)).tobytes() for name, value in named.items()}
        return {n: f"{v.dtype} {v.shape} {hashlib.sha256(flat[n]).hexdigest()}" for n, v in named.items()}

    def close(self) -> None:
        """Nothing to end: the model goes with this object."""

    def steps(
        self, ids: tuple[int, ...], caches: list[Any], p: SamplingParams, *processors: Any
    ) -> Iterator[tuple[int, mx.array]]:
        """generate_step; `processors` see the logits behind those of the parameters."""
        if p.sampler != "categorical":
            raise errors.InvalidValue("sampler", p.sampler, "categorical: mlx-lm has no other")
        return GENERATE.generate_step(
            mx.array(ids),
            self.model,
            max_tokens=p.max_tokens,
            sampler=make_sampler(
                temp=p.temperature,
                top_p=p.top_p,
                min_p=p.min_p,
                min_tokens_to_keep=p.min_tokens_to_keep,
                top_k=p.top_k,
                xtc_probability=p.xtc_probability,
                xtc_threshold=p.xtc_threshold,
            ),
            logits_processors=[
                *make_logits_processors(
                    logit_bias=dict(p.logit_bias) or None,
                    repetition_penalty=p.repetition_penalty,
                    repetition_context_size=p.repetition_context_size,
                    presence_penalty=p.presence_penalty,
                    presence_context_size=p.presence_context_size,
                    frequency_penalty=p.frequency_penalty,
                    frequency_context_size=p.frequency_context_size,
                ),
                *processors,
            ],
            prompt_cache=caches,
            prefill_step_size=self.config.chunk,
            **self.kv_arguments,
        )

    def doc(self, caches: list[Any], prompt_tokens: int) -> dict[str, Any]:
        described = describe(caches)
        return {
            "stack": self.config.stack,
            "versions": self.versions,
            "machine": machine().key,
            "kv_status": kv_status(self.config.kv, described),
            "caches": described,
            "prompt_tokens": prompt_tokens,
        }


@dataclass(frozen=True)
class FilledCaches:
    """mlx-lm's caches behind a context."""

    stack: MlxLmStack
    caches: list[Any]

    def fill(self, token_ids: tuple[int, ...]) -> None:
        chunk = self.stack.config.chunk
        for start in range(0, len(token_ids), chunk):
            self.stack.model(mx.array(token_ids[start : start + chunk])[None], cache=self.caches)
            mx.eval(self.arrays())

    def twin(self) -> FilledCaches:
        return FilledCaches(self.stack, copy.deepcopy(self.caches))  # arrays are copied as handles, not as bytes

    def convert(self) -> None:
        GENERATE.maybe_quantize_kv_cache(self.caches, **self.stack.kv_arguments)

    def arrays(self) -> Any:
        return [cache.state for cache in self.caches]

    def kv_status(self) -> str:
        return kv_status(self.stack.config.kv, describe(self.caches))

    def __call__(self, ids: mx.array) -> mx.array:
        logits: mx.array = self.stack.model(ids, cache=self.caches)
        self.convert()
        return logits


# class -> the layout's name and the attribute that holds its size; everything else keeps all tokens.
LAYOUTS: dict[type, tuple[str, str]] = {
    RotatingKVCache: ("rotating", "max_size"),
    ChunkedKVCache: ("chunked", "chunk_size"),
}
QUANTIZED: list[type] = [QuantizedKVCache]


def add_cache_kind(kind: type, layout: str, size: str, *, quantized: bool) -> None:
    """Make a cache class of another stack describable: its layout, and the attribute that holds its size."""
    LAYOUTS[kind] = (layout, size)
    if quantized:
        QUANTIZED.append(kind)


def describe(caches: list[Any]) -> list[dict[str, Any]]:
    """One `CacheLayer` dict per cache, in the order of the model's `make_cache`, read from the live objects.

    A layer that reads another's keys has no cache of its own and no entry; one with a list of caches has one each.
    """
    parts = [part for cache in caches for part in (cache.caches if isinstance(cache, CacheList) else (cache,))]
    return [_described(i, part) for i, part in enumerate(parts)]


def _described(index: int, cache: Any) -> dict[str, Any]:
    if isinstance(cache, ArraysCache):
        return _described_state(index, cache, cache.cache)
    if isinstance(cache, LayerCache):
        held = [cache.window, cache.compress_kv, cache.index_k, cache.pending_kv, cache.pending_gate]
        return _described_state(index, cache, held)
    bits, group, layout = None, None, "full"
    if type(cache) not in (KVCache, *LAYOUTS, *QUANTIZED):
        raise TypeError(f"cache {index} is a {type(cache).__name__}, which this oracle cannot describe")
    keys = cache.keys
    if type(cache) in QUANTIZED:
        bits, group = int(cache.bits), int(cache.group_size)
        keys = None if keys is None else keys[0]
    if type(cache) in LAYOUTS:
        name, size = LAYOUTS[type(cache)]
        layout = f"{name}:{getattr(cache, size)}"
    return {
        "layer": index,
        "scheme": scheme_name(bits, group),
        "layout": layout,
        "offset": int(cache.offset),
        "dtype": "empty" if keys is None else str(keys.dtype).removeprefix("mlx.core."),
        "bits": bits,
        "group_size": group,
        "kv_bytes": 0 if keys is None else int(cache.nbytes),
    }


def _described_state(index: int, cache: Any, held: Sequence[mx.array | None]) -> dict[str, Any]:
    """A state of the arrays in `held`; mlx-lm's recurrent ones do not know how many tokens are in them."""
    present = [array for array in held if array is not None]
    dtypes = sorted({str(array.dtype).removeprefix("mlx.core.") for array in present})
    return {
        "layer": index,
        "scheme": scheme_name(None, None),
        "layout": f"state:{len(held)}",
        "offset": None,
        "dtype": "+".join(dtypes) or "empty",
        "bits": None,
        "group_size": None,
        "kv_bytes": int(cache.nbytes),
    }


def _eos_ids(folder: Path) -> frozenset[int]:
    """End-of-sequence ids by mlx-lm's rule (generation_config.json wins over config.json), without a tokenizer."""
    eos = load_config(folder).get("eos_token_id")
    if eos is None:
        return frozenset()
    return frozenset(eos) if isinstance(eos, list) else frozenset((eos,))
