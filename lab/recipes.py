"""The recipes of the scorecard and their timed samples: stacks x KV schemes, and foreign servers, taken in turn.

Every recipe lives in its own process. In each round every recipe gives one sample on that round's prompt, in a random
order, one at a time; the processes that are not asked sleep on a pipe. Where memory does not hold them all at once,
each sample gets a fresh process instead.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Generic, Protocol, TypeVar

import numpy as np
import psutil

from engine import errors
from evals.protocol import Plan
from lab import sensors
from oracles.contract import STACKS, OracleRefused, Probe, SchemeNotLive, StackConfig, TimeProbe, Trace

SCHEMES = ("native", "kv8", "kv4")
REFERENCE_STACK = "mlx-lm"
PROCESS_OVERHEAD_BYTES = 700 * 2**20
WARMUP_TOKENS = 4
# Logits of every position, their way between processes, and KL in float64.
KL_OVERHEAD_S = 0.7

Progress = Callable[[str, int, int | None], None]


class Asked(Protocol):
    """The part of `oracles.client.Worker` that measuring needs."""

    def probe(self, probe: Probe | TimeProbe) -> Trace: ...

    def close(self) -> None: ...


class Configured(Protocol):
    """What the pool needs to know of a recipe's configuration."""

    @property
    def kv(self) -> str: ...


C = TypeVar("C", bound=Configured)
RequireScheme = Callable[[Trace, str], None]


@dataclass(frozen=True, kw_only=True)
class Profile:
    """How much is measured. `relaunch`: a fresh process for each round. KL uses the "forward" protocol.

    aa: whether the reference recipe runs in a second process too, against itself.
    """

    name: str
    rounds: int
    prompt_tokens: int
    decode_tokens: int
    relaunch: bool
    aa: bool
    kl_sequences: int
    kl_length: int
    kl_check: int
    recipes_budget_s: float
    kl_budget_s: float

    @property
    def context(self) -> int:
        """Tokens in the cache when memory is read."""
        return self.prompt_tokens + self.decode_tokens

    @property
    def kl_plan(self) -> Plan:
        """How a KL sequence is fed, and which of its positions are scored."""
        return Plan("forward", self.kl_length)


PROFILES = {
    "quick": Profile(
        name="quick",
        rounds=3,
        prompt_tokens=128,
        decode_tokens=17,
        relaunch=False,
        aa=False,
        kl_sequences=16,
        kl_length=128,
        kl_check=1,
        recipes_budget_s=150,
        kl_budget_s=150,
    ),
    "full": Profile(
        name="full",
        rounds=12,
        prompt_tokens=256,
        decode_tokens=65,
        relaunch=True,
        aa=True,
        kl_sequences=64,
        kl_length=256,
        kl_check=4,
        recipes_budget_s=7200,
        kl_budget_s=7200,
    ),
}


@dataclass(frozen=True)
class RecipeSpec:
    stack: str
    kv: str

    @property
    def name(self) -> str:
        return f"{self.stack} {self.kv}"

    def config(self, model: Path, blas: str) -> StackConfig:
        return StackConfig(stack=self.stack, model=str(model), kv=self.kv, blas=blas)


RECIPES = tuple(RecipeSpec(stack, kv) for kv in SCHEMES for stack in STACKS)
REFERENCE = RecipeSpec(REFERENCE_STACK, "native")
# The engine as it is when nothing is asked of it.
DEFAULT = RecipeSpec("engine", "native")
# The reference once more, in a process of its own: the A/A.
AGAIN = f"{REFERENCE.name} A/A"


@dataclass(frozen=True)
class Sample:
    """One timed sample, kept as it was taken. `position`: its place in the round's random order.

    launch: samples of one launch came from the same processes. steal: share of CPU time that the host took meanwhile.
    The bytes of a foreign server are not known.
    """

    recipe: str
    round: int
    position: int
    decode_tok_s: float
    prefill_tok_s: float
    ttft_ms: float
    tpot_ms: float
    peak_bytes: int | None
    rss_bytes: int | None
    kv_bytes: int | None
    kv_status: str
    sample_s: float
    launch: int = 0
    steal: float | None = None

    @classmethod
    def of(cls, recipe: str, round_: int, position: int, trace: Trace) -> Sample:
        """Read a timing trace. A sample without a duration raises `InvalidValue`."""
        doc = trace.doc
        for name in ("prefill_s", "decode_s", "ttft_s", "decode_tokens"):
            if not doc[name] > 0:
                raise errors.InvalidValue(f"{name} of {recipe}", doc[name], "a number above 0")
        return cls(
            recipe=recipe,
            round=round_,
            position=position,
            decode_tok_s=doc["decode_tokens"] / doc["decode_s"],
            prefill_tok_s=doc["prompt_tokens"] / doc["prefill_s"],
            ttft_ms=1000 * doc["ttft_s"],
            tpot_ms=1000 * doc["decode_s"] / doc["decode_tokens"],
            peak_bytes=doc["peak_bytes"],
            rss_bytes=doc["rss_bytes"],
            kv_bytes=doc["kv_bytes"],
            kv_status=doc["kv_status"],
            sample_s=doc["ttft_s"] + doc["decode_s"],
        )


@dataclass(frozen=True)
class Pilot:
    """Speeds of the reference recipe, from which sizes and times are foretold."""

    prefill_tok_s: float
    decode_tok_s: float

    def sample_s(self, profile: Profile) -> float:
        return profile.prompt_tokens / self.prefill_tok_s + profile.decode_tokens / self.decode_tok_s

    def kl_sequence_s(self, profile: Profile) -> float:
        forward_s = (profile.kl_length - 1) / self.prefill_tok_s + 1 / self.decode_tok_s
        return forward_s + KL_OVERHEAD_S


def fit(profile: Profile, pilot: Pilot, recipes: int) -> tuple[Profile, tuple[str, ...]]:
    """Cut rounds, then the prompt; KL sequences, then their length, until the forecast fits the budgets; say so."""
    cut = profile
    notes = []
    while cut.rounds > 2 and cut.rounds * recipes * pilot.sample_s(cut) > cut.recipes_budget_s:
        cut = replace(cut, rounds=cut.rounds - 1)
    while cut.prompt_tokens > 32 and cut.rounds * recipes * pilot.sample_s(cut) > cut.recipes_budget_s:
        cut = replace(cut, prompt_tokens=cut.prompt_tokens // 2)
    while cut.kl_sequences > 4 and kl_seconds(cut, pilot, recipes) > cut.kl_budget_s:
        cut = replace(cut, kl_sequences=cut.kl_sequences - 1)
    while cut.kl_length > 32 and kl_seconds(cut, pilot, recipes) > cut.kl_budget_s:
        cut = replace(cut, kl_length=cut.kl_length // 2)
    for name in ("rounds", "prompt_tokens", "kl_sequences", "kl_length"):
        before, after = profile.__dict__[name], cut.__dict__[name]
        if before != after:
            what = name.replace("kl_", "KL ").replace("_", " ")
            notes.append(f"{what} cut from {before} to {after}: the pilot was too slow for the budget")
    return cut, tuple(notes)


def kl_seconds(profile: Profile, pilot: Pilot, recipes: int) -> float:
    """Forecast of the quality stage: the reference stack's schemes in full, the others on the check sequences."""
    schemes = min(len(SCHEMES), recipes)
    probes = schemes * profile.kl_sequences + (recipes - schemes) * min(profile.kl_check, profile.kl_sequences)
    return probes * pilot.kl_sequence_s(profile)


class Pool(Generic[C]):
    """The recipes' processes. `resident`: all stay loaded; otherwise one at a time, started for each use.

    A recipe that its stack refuses lands in `refused` with the stack's own words and is not asked again.
    """

    def __init__(self, configs: Mapping[str, C], start: Callable[[C], Asked], *, resident: bool) -> None:
        self.configs = dict(configs)
        self.refused: dict[str, str] = {}
        self.resident = resident
        self._start = start
        self._open: dict[str, Asked] = {}

    @property
    def live(self) -> list[str]:
        return [name for name in self.configs if name not in self.refused]

    def begin(self, name: str) -> None:
        """Start a process without waiting for its model; a refusal then comes with its first probe."""
        if name in self.refused or name in self._open:
            return
        try:
            self._open[name] = self._start(self.configs[name])
        except OracleRefused as refusal:
            self.refuse(name, str(refusal))

    def ask(self, name: str, probe: Probe | TimeProbe) -> Trace | None:
        """One probe; None once the stack has refused this recipe."""
        if name not in self._open and not self.resident:
            self.close()
        self.begin(name)
        if name in self.refused:
            return None
        try:
            return self._open[name].probe(probe)
        except OracleRefused as refusal:
            self.refuse(name, str(refusal))
            return None

    def refuse(self, name: str, reason: str) -> None:
        self.refused[name] = reason
        self._drop(name)

    def _drop(self, name: str) -> None:
        worker = self._open.pop(name, None)
        if worker is not None:
            worker.close()

    def close(self) -> None:
        """End every process; the pool stays usable and starts them anew."""
        for name in list(self._open):
            self._drop(name)

    def __enter__(self) -> Pool[C]:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def fits_memory(artifact_bytes: int, recipes: int) -> bool:
    """Whether all processes fit into the memory that is free now."""
    need = recipes * (artifact_bytes + PROCESS_OVERHEAD_BYTES)
    return need < 0.8 * psutil.virtual_memory().available


def warm_up(pool: Pool[C], names: Sequence[str], prompt: Sequence[int], require: RequireScheme, tick: Progress) -> None:
    """Start each recipe and take a short sample that is thrown away, so that no measured one pays for a first run.

    A recipe whose caches are not of the asked scheme is refused here: "scheme not live".
    """
    probe = TimeProbe(token_ids=tuple(prompt), max_tokens=WARMUP_TOKENS)
    for i, name in enumerate(names):
        tick(f"start {name}", i, len(names))
        if pool.resident and i + 1 < len(names):
            pool.begin(names[i + 1])  # nothing is measured here, so the next model may load meanwhile
        trace = pool.ask(name, probe)
        if trace is not None:
            try:
                require(trace, pool.configs[name].kv)
            except SchemeNotLive as error:
                pool.refuse(name, str(error))
    tick("started", len(names), len(names))


def turned(prompt: Sequence[int], round_: int) -> list[int]:
    """The warm-up prompt of a round, which begins otherwise in each: a server that lives on would have it cached."""
    at = round_ % len(prompt)
    return [*prompt[at:], *prompt[:at]]


def take_samples(
    pool: Pool[C],
    prompts: Sequence[Sequence[int]],
    profile: Profile,
    require: RequireScheme,
    tick: Progress,
    seed: int,
    record: Callable[[Sample], None] = lambda _sample: None,
) -> list[Sample]:
    """One sample a recipe and round, all recipes in turn in a random order. `prompts[r]`: the ids of round r, and the
    last one's warm processes up. `record` has each sample when it is taken.

    Rounds stay complete: of a recipe that is refused half-way no sample is returned. Errors: `SchemeNotLive`.
    """
    rng = np.random.Generator(np.random.PCG64(seed))
    names = pool.live
    samples: list[Sample] = []
    done = 0
    for round_ in range(profile.rounds):
        if profile.relaunch and pool.resident and round_:
            pool.close()
            warm_up(pool, [names[i] for i in rng.permutation(len(names))], turned(prompts[-1], round_), require, tick)
        for position, pick in enumerate(rng.permutation(len(names))):
            name = names[pick]
            tick(f"round {round_ + 1}/{profile.rounds}: {name}", done, profile.rounds * len(names))
            ids = tuple(prompts[round_][: profile.prompt_tokens])
            if not pool.resident:
                warm_up(pool, [name], turned(prompts[-1], round_ + 1), require, lambda *_: None)
            before = sensors.read()
            trace = pool.ask(name, TimeProbe(token_ids=ids, max_tokens=profile.decode_tokens))
            after = sensors.read()
            done += 1
            if trace is not None:
                require(trace, pool.configs[name].kv)
                launch = round_ if profile.relaunch or not pool.resident else 0
                sample = Sample.of(name, round_, position, trace)
                sample = replace(sample, launch=launch, steal=sensors.steal_share(before, after))
                samples.append(sample)
                record(sample)
    tick("samples taken", done, done)
    return [sample for sample in samples if sample.recipe not in pool.refused]
