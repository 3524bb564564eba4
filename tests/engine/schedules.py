"""Random schedules: requests that arrive, run beside others, leave and are cancelled, each judged by its solo run."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from engine import Engine, Generation, Request, SamplingParams, load

CHUNK = 7
# Around one token, the windows of the tiny models (8), and the chunk.
LENGTHS = (1, 2, 6, 7, 8, 9, 14, 15, 16, 22, 30)


@dataclass(frozen=True)
class Arrival:
    """A request, the turn before which it comes, and the turn before which it is cancelled, if it is."""

    turn: int
    request: Request
    cancel: int | None


def draw_sampling(rng: random.Random, vocab: int) -> SamplingParams:
    """Greedy or sampled, with and without each processor and filter."""
    fields: dict[str, Any] = {
        "max_tokens": rng.randint(1, 9),
        "ignore_eos": rng.random() < 0.7,
        "seed": rng.randrange(99),
    }
    if rng.random() < 0.5:
        fields |= {"temperature": rng.choice((0.5, 1.0, 3.0))}
        fields |= rng.choice(({}, {"top_p": 0.9}, {"top_k": 5}, {"min_p": 0.05}, {"top_p": 0.8, "top_k": 9}))
        if rng.random() < 0.3:
            fields |= {"xtc_probability": 0.5, "xtc_threshold": 0.05}
    for name, value in (("repetition_penalty", 1.3), ("presence_penalty", 0.7), ("frequency_penalty", 0.4)):
        if rng.random() < 0.2:
            fields[name] = value
    if rng.random() < 0.2:
        fields["logit_bias"] = {rng.randrange(vocab): rng.choice((-4.0, 4.0))}
    if rng.random() < 0.4:
        fields["top_logprobs"] = rng.randrange(4)
    return SamplingParams(**fields)


def draw_schedule(rng: random.Random, vocab: int) -> list[Arrival]:
    """Two to five requests over the first turns."""
    arrivals = []
    for _ in range(rng.randint(2, 5)):
        prompt = tuple(rng.randrange(2, vocab) for _ in range(rng.choice(LENGTHS)))
        taps = rng.choice(((), ("logits",), ("logprobs",)))
        forced = tuple(rng.randrange(2, vocab) for _ in range(5)) if rng.random() < 0.1 else None
        request = Request(
            prompt=prompt, sampling=draw_sampling(rng, vocab), taps=taps, forced_tokens=forced, delivery="collect"
        )
        turn = rng.randint(0, 14)
        arrivals.append(Arrival(turn, request, turn + rng.randint(0, 8) if rng.random() < 0.15 else None))
    return sorted(arrivals, key=lambda arrival: arrival.turn)


class Judge:
    """An engine to run schedules on, and what each request gives alone (looked up once)."""

    def __init__(self, folder: Path, **config: Any) -> None:
        self.folder, self.config = folder, {"prefill_chunk": CHUNK, "drive": "manual", **config}
        self.solo = load(folder, **self.config)
        self.vocab = int(self.solo.model_config.get("vocab_size", 100))
        self.engines: dict[int, Engine] = {}
        self.shared = 0  # forwards of several prompts

    def close(self) -> None:
        for engine in (self.solo, *self.engines.values()):
            engine.close()

    def _count(self, log: Any) -> None:
        self.shared += len(log.turn.prefill) > 1

    def run(self, seed: int) -> int:
        """One schedule; the number of rows that were compared in full. Raises AssertionError naming seed and row."""
        rng = random.Random(seed)
        rows = rng.randint(1, 8)
        if rows not in self.engines:
            self.engines[rows] = load(self.folder, batch=rows, **self.config)
            self.engines[rows].trace_turns(self._count)
        engine, arrivals = self.engines[rows], draw_schedule(rng, self.vocab)
        handles: list[Any] = [None] * len(arrivals)
        turn = 0
        while True:
            for i, arrival in enumerate(arrivals):
                if arrival.turn == turn:
                    handles[i] = engine.submit(arrival.request)
                if arrival.cancel == turn:
                    handles[i].cancel()
            if not engine.step() and all(handle is not None for handle in handles):
                break
            turn += 1
        compared = 0
        for i, (arrival, handle) in enumerate(zip(arrivals, handles, strict=True)):
            got, alone = handle.result(), self.solo.submit(arrival.request).result()
            if got.finish_reason == "cancelled":
                n = len(got.tokens)
                assert got.tokens == alone.tokens[:n], (seed, i)
                continue
            differ = difference(got, alone)
            assert not differ, (seed, i, differ, arrival)
            compared += 1
        return compared


def difference(got: Generation, alone: Generation) -> str:
    """The first field in which two generations differ; timing and machine apart."""
    for name in ("tokens", "finish_reason", "logprobs", "usage", "kv_status", "text"):
        if getattr(got, name) != getattr(alone, name):
            return f"{name}: {getattr(got, name)} instead of {getattr(alone, name)}"
    caches: Mapping[str, Any] = {"got": got.caches, "alone": alone.caches}
    if [replace(c, kv_bytes=0) for c in caches["got"]] != [replace(c, kv_bytes=0) for c in caches["alone"]]:
        return f"caches: {caches}"
    if got.taps.keys() != alone.taps.keys():
        return "taps"
    for name in got.taps:
        if not np.array_equal(np.array(got.taps[name]), np.array(alone.taps[name])):
            return f"taps {name}"
    return ""
