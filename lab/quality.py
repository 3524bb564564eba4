"""KL and perplexity of every recipe, teacher-forced on the same frozen sequences.

Only positions whose forward attended the recipe's own cache scheme are scored; the live scheme of each is asserted.
The reference is the reference stack's native recipe. A recipe of another stack is first checked for equal bits: where
its logits equal the reference stack's of the same scheme, byte for byte, on the check sequences, it takes over that
recipe's numbers and the page says so; otherwise it is scored in full.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from engine import errors
from lab.estimate import Estimate, sequence_mean, sequence_perplexity
from lab.recipes import REFERENCE_STACK, Pool, Profile, Progress, RecipeSpec
from oracles.contract import OracleRefused, Probe, SchemeNotLive, Trace
from oracles.live import planned_schemes

# Sequences whose reference logits are held at once when processes cannot all stay loaded.
BLOCK = 16

KlRows = Callable[[np.ndarray, np.ndarray], np.ndarray]


class LogitsFault(errors.FrontierError):
    """Logits that cannot be scored: another shape than the reference's, or not finite."""

    exit_code = 3


@dataclass(frozen=True)
class Quality:
    """`kl_units`, `nll_units`: mean per sequence, in nats; `scored`/`total` positions; `top1`: share agreeing.

    `same_bits_as`: the recipe whose numbers these are, and `checked` how many positions were compared byte for byte.
    """

    recipe: str
    kl_units: tuple[float, ...]
    nll_units: tuple[float, ...]
    top1: float
    scored: int
    total: int
    same_bits_as: str | None = None
    checked: int = 0

    @property
    def kl(self) -> Estimate:
        return sequence_mean(self.kl_units)

    @property
    def perplexity(self) -> Estimate:
        return sequence_perplexity(self.nll_units)


@dataclass
class _Tally:
    kl: list[float] = field(default_factory=list)
    nll: list[float] = field(default_factory=list)
    agree: int = 0
    scored: int = 0
    prints: list[str] = field(default_factory=list)


def scored_rows(profile: Profile) -> range:
    """Positions of a sequence that count: all after the head, or else the tail that runs token by token."""
    first = profile.kl_head if profile.kl_head else profile.kl_length - profile.kl_tail
    return range(first, profile.kl_length)


def assert_live(trace: Trace, kv: str, rows: range, recipe: str) -> None:
    """Every scored position attended the asked scheme, else `SchemeNotLive`: the run is invalid."""
    planned = set(planned_schemes(kv, len(trace.doc["caches"])))
    want = planned.pop() if len(planned) == 1 else "mixed"
    for j in rows:
        if trace.doc["kv_live"][j] != want:
            raise SchemeNotLive(
                f"{recipe}: position {j} attended {trace.doc['kv_live'][j]!r} instead of {want!r}; lever not applied"
            )


def _logits(trace: Trace, recipe: str, length: int) -> np.ndarray:
    logits = np.asarray(trace.tensors["logits"], dtype=np.float32)
    if logits.ndim != 2 or len(logits) != length:
        raise LogitsFault(f"{recipe}: logits of shape {logits.shape} instead of [{length}, V]")
    if not np.isfinite(logits).all():
        raise LogitsFault(f"{recipe}: logits are not finite")
    return logits


def _nll(rows: np.ndarray, targets: np.ndarray) -> np.ndarray:
    """Negative log-likelihood of `targets` [N] under `rows` [N, V], in float64."""
    wide = rows.astype(np.float64)
    top = wide.max(axis=1)
    total = top + np.log(np.exp(wide - top[:, None]).sum(axis=1))
    return np.asarray(total - wide[np.arange(len(targets)), targets])


def run_quality(
    pool: Pool,
    specs: Sequence[RecipeSpec],
    sequences: Sequence[Sequence[int]],
    profile: Profile,
    kl_rows: KlRows,
    tick: Progress,
) -> dict[str, Quality]:
    """Score every live recipe. `sequences[s]`: kl_length + 1 ids, the last one only as a target.

    `kl_rows(reference [N, V], candidate [N, V]) -> [N]` in nats. Errors: `SchemeNotLive`, `LogitsFault`, and whatever
    `kl_rows` raises on a negative KL.
    """
    live = [spec for spec in specs if spec.name in pool.live]
    reference = RecipeSpec(REFERENCE_STACK, "native")
    if reference not in live:
        raise errors.InvalidValue("quality reference", reference.name, "a recipe that runs")
    ordered = sorted(live, key=lambda spec: (spec != reference, spec.stack != REFERENCE_STACK))
    check = min(profile.kl_check, len(sequences))
    tallies = {spec.name: _Tally() for spec in ordered}
    twins: dict[str, str] = {}
    total = sum(len(sequences) if spec.stack == REFERENCE_STACK else check for spec in ordered)
    done = 0

    def score(spec: RecipeSpec, s: int, base: np.ndarray | None) -> np.ndarray | None:
        """Ask one recipe for one sequence and add it to its tally; returns the scored rows."""
        ids = sequences[s]
        probe = Probe(token_ids=tuple(ids[: profile.kl_length]), head=profile.kl_head, tail=profile.kl_tail)
        trace = pool.ask(spec.name, probe)
        if trace is None:
            return None
        rows = scored_rows(profile)
        assert_live(trace, spec.kv, rows, spec.name)
        kept = _logits(trace, spec.name, profile.kl_length)[rows.start : rows.stop]
        against = kept if base is None else base
        tally = tallies[spec.name]
        tally.kl.append(float(np.mean(kl_rows(against, kept))))
        tally.nll.append(float(_nll(kept, np.asarray(ids[rows.start + 1 : rows.stop + 1])).mean()))
        tally.agree += int((against.argmax(axis=1) == kept.argmax(axis=1)).sum())
        tally.scored += len(rows)
        if s < check:
            tally.prints.append(hashlib.sha256(kept.tobytes()).hexdigest())
        return kept

    block = 1 if pool.resident else BLOCK
    for start in range(0, len(sequences), block):
        held: dict[int, np.ndarray] = {}
        for spec in ordered:
            for s in range(start, min(start + block, len(sequences))):
                if spec.name in twins or spec.name in pool.refused:
                    continue
                tick(f"{spec.name}, sequence {s + 1}/{len(sequences)}", done, total)
                kept = score(spec, s, None if spec == reference else held[s])
                done, total = done + 1, max(total, done + 1)
                if kept is None and spec == reference:
                    raise OracleRefused(pool.refused[spec.name])
                if kept is None:
                    continue
                if spec == reference:
                    held[s] = kept
                twin = RecipeSpec(REFERENCE_STACK, spec.kv).name
                if spec.stack != REFERENCE_STACK and s == check - 1 and twin in tallies and check < len(sequences):
                    if tallies[spec.name].prints == tallies[twin].prints:
                        twins[spec.name] = twin
                    else:
                        total += len(sequences) - check
    tick("scored", total, total)
    return {
        spec.name: _finish(spec.name, tallies, twins.get(spec.name), profile, check)
        for spec in ordered
        if spec.name not in pool.refused
    }


def _finish(name: str, tallies: dict[str, _Tally], twin: str | None, profile: Profile, check: int) -> Quality:
    tally: Any = tallies[twin or name]
    positions = len(scored_rows(profile))
    return Quality(
        recipe=name,
        kl_units=tuple(tally.kl),
        nll_units=tuple(tally.nll),
        top1=tally.agree / tally.scored,
        scored=tally.scored,
        total=positions * len(tally.kl),
        same_bits_as=twin,
        checked=positions * check if twin else 0,
    )
