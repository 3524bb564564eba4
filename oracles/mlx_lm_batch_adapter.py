"""mlx-lm's batches as an oracle: its BatchGenerator, turn by turn and against the clock. Only for a worker's process.

Letters: N generated tokens, V vocabulary.
"""

from __future__ import annotations

import importlib
import time
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import mlx.core as mx
import numpy as np
from mlx_lm.models.cache import make_prompt_cache

from engine import SamplingParams, errors
from oracles.batch_timing import Batch, Stamp, timed_busy, timed_load, timed_rows
from oracles.contract import BatchProbe, BusyProbe, LoadProbe, RowsProbe, Trace

if TYPE_CHECKING:
    from oracles.mlx_lm_adapter import MlxLmStack

# The package attribute `generate` is the function of that name; this is the module.
GENERATE = importlib.import_module("mlx_lm.generate")

# Both of mlx-lm's loops run the step behind the last token too.
AHEAD = 1
OPEN_ROWS = 8  # how many an open loop runs at once: the engine's own default


def new_generator(stack: MlxLmStack, size: int) -> Any:
    """A BatchGenerator of at most `size` rows. Errors: `InvalidValue` for packed caches, which it does not take."""
    if stack.kv_arguments["kv_bits"] is not None:
        raise errors.InvalidValue("kv", stack.config.kv, "native: mlx-lm's batch takes no packed caches")
    return GENERATE.BatchGenerator(
        stack.model,
        completion_batch_size=size,
        prefill_batch_size=size,
        prefill_step_size=stack.config.chunk,
    )


def run_batch(stack: MlxLmStack, probe: BatchProbe) -> Trace:
    """A row inserted before each turn that it is to join; each row then runs alone as well, and where the batch is not
    what it is alone, the gap is told, and the row alone is the answer, if it is to judge."""
    generator = new_generator(stack, len(probe.rows))
    rows: dict[int, int] = {}  # uid -> row
    tokens: list[list[int]] = [[] for _ in probe.rows]
    logprobs: list[list[mx.array]] = [[] for _ in probe.rows]
    logits = [Kept() for _ in probe.rows]
    turn, left = 0, len(probe.rows)
    while left:
        for i in (i for i, join in enumerate(probe.joins) if join == turn):
            (uid,) = generator.insert([list(probe.rows[i])], [probe.limits[i]], logits_processors=[[logits[i]]])
            rows[uid] = i
        _, responses = generator.next()
        for response in responses:
            tokens[rows[response.uid]].append(int(response.token))
            logprobs[rows[response.uid]].append(response.logprobs)
            left -= response.finish_reason is not None
        turn += 1
    generator.close()
    apart: dict[str, float] = {}
    for i, ids in enumerate(probe.rows):
        params = SamplingParams(max_tokens=probe.limits[i], ignore_eos=True)
        kept = Kept()
        alone = list(stack.steps(ids, make_prompt_cache(stack.model), params, kept))
        count = len(alone)  # of either list of logits: both loops run a step ahead
        pairs = [[row for _, row in alone], logprobs[i]], [kept.rows[:count], logits[i].rows[:count]]
        gaps = [_gap(*map(mx.stack, pair)) for pair in pairs]
        if any(gaps):
            apart[f"row.{i}"] = max(gaps)
        if any(gaps) and probe.judge == "plain":
            tokens[i], logprobs[i], logits[i] = [token for token, _ in alone], [row for _, row in alone], kept
    doc = stack.doc(make_prompt_cache(stack.model), len(probe.token_ids))
    tensors = {f"row.{i}": mx.stack(rows) for i, rows in enumerate(logprobs)}
    tensors |= {f"logits.{i}": mx.stack(each.rows[: len(logprobs[i])]) for i, each in enumerate(logits)}
    flat = [token for row in tokens for token in row]
    return Trace(tensors, doc | {"kv_status": "native", "tokens": flat, "apart": apart})


class Kept:
    """A logits processor that changes nothing and keeps what it sees: rows [V], one a step."""

    def __init__(self) -> None:
        self.rows: list[mx.array] = []

    def __call__(self, _tokens: Any, logits: mx.array) -> mx.array:
        self.rows.append(logits[0])
        return logits


def _gap(left: mx.array, right: mx.array) -> float:
    """The largest difference; NaN counts as one."""
    if mx.array_equal(left, right):
        return 0.0
    gap = np.abs(np.array(left.astype(mx.float32)) - np.array(right.astype(mx.float32)))
    return float(np.nan_to_num(gap, nan=np.inf).max()) or float(np.finfo(np.float32).tiny)


class GeneratorBatch(Batch):
    """Rows of one BatchGenerator. It works when it is called: what is added waits for the next turn."""

    def __init__(self, stack: MlxLmStack, size: int) -> None:
        self._generator = new_generator(stack, size)
        self._rows: dict[int, int] = {}  # uid -> row
        self._caches: list[Any] | None = None

    def add(self, prompt: tuple[int, ...], limit: int) -> int:
        (uid,) = self._generator.insert([list(prompt)], [limit])
        self._rows[uid] = len(self._rows)
        return self._rows[uid]

    def tokens(self, until_s: float) -> Sequence[Stamp]:
        _, responses = self._generator.next()
        now = time.perf_counter()
        for response in responses:
            if self._rows[response.uid] == 0:
                self._caches = response.prompt_cache
        return [(self._rows[response.uid], now) for response in responses]

    def caches(self) -> list[Any]:
        """Those of row 0: as they ended, or as they are."""
        if self._caches is not None:
            return self._caches
        uid = next(uid for uid, row in self._rows.items() if row == 0)
        caches: list[Any] = self._generator.extract_cache([uid])[uid][0]
        return caches

    def close(self) -> None:
        self._generator.close()


class LoopBatch(Batch):
    """One row in generate_step, mlx-lm's plain loop."""

    def __init__(self, stack: MlxLmStack) -> None:
        self._stack = stack
        self._caches: list[Any] = make_prompt_cache(stack.model)
        self._steps: Iterator[tuple[int, mx.array]] = iter(())

    def add(self, prompt: tuple[int, ...], limit: int) -> int:
        self._steps = self._stack.steps(prompt, self._caches, SamplingParams(max_tokens=limit, ignore_eos=True))
        return 0

    def tokens(self, until_s: float) -> Sequence[Stamp]:
        next(self._steps)
        return [(0, time.perf_counter())]

    def caches(self) -> list[Any]:
        return self._caches

    def close(self) -> None:
        """Take the step that it computes ahead: it must not run into the next sample."""
        for _ in self._steps:
            raise RuntimeError("generate_step made more tokens than asked")
        mx.synchronize()


def time_rows(stack: MlxLmStack, probe: RowsProbe | LoadProbe) -> Trace:
    """One row in the plain loop, several in the BatchGenerator; of a load as many at once as are in work."""
    if isinstance(probe, LoadProbe):
        size = probe.concurrency or OPEN_ROWS
        return _trace(stack, *timed_load(lambda: GeneratorBatch(stack, size), probe), len(probe.token_ids))

    def open_batch() -> GeneratorBatch | LoopBatch:
        return LoopBatch(stack) if len(probe.rows) == 1 else GeneratorBatch(stack, len(probe.rows))

    return _trace(stack, *timed_rows(open_batch, probe), len(probe.token_ids))


def time_busy(stack: MlxLmStack, probe: BusyProbe) -> Trace:
    """Arrivals in a BatchGenerator that has room for one more row."""
    batch, times = timed_busy(lambda: GeneratorBatch(stack, len(probe.rows) + 1), probe, stack.config.chunk)
    return _trace(stack, batch, times, len(probe.token_ids))


def _trace(stack: MlxLmStack, batch: GeneratorBatch | LoopBatch, times: dict[str, Any], tokens: int) -> Trace:
    """caches and kv_bytes: of the first row."""
    doc = stack.doc(batch.caches(), tokens) | {"ahead": AHEAD}
    batch.close()
    return Trace({}, doc | times | {"kv_bytes": sum(int(cache["kv_bytes"]) for cache in doc["caches"])})
