"""KL and perplexity of every recipe, teacher-forced on the same frozen sequences.

Only positions whose forward attended the recipe's own cache scheme are scored; the live scheme of each is asserted.
The reference is the reference stack's native recipe. A recipe of another stack is first checked for equal bits: where
its logits equal the reference stack's of the same scheme, byte for byte, on the check sequences, it takes over that
recipe's numbers and the page says so; otherwise it is scored in full.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from engine import errors
from evals.kl import kl_divergence, token_nll
from evals.protocol import scored_logits
from lab.estimate import Estimate, sequence_mean, sequence_perplexity
from lab.recipes import REFERENCE_STACK, Pool, Profile, Progress, RecipeSpec
from oracles.contract import OracleRefused

# Sequences whose reference logits are held at once when processes cannot all stay loaded.
BLOCK = 16


@dataclass(frozen=True)
class Quality:
    """`kl_units`, `nll_units`: mean per sequence, in nats; `scored`: positions; `top1`: share agreeing.

    `same_bits_as`: the recipe whose numbers these are, and `checked` how many positions were compared byte for byte.
    """

    recipe: str
    kl_units: tuple[float, ...]
    nll_units: tuple[float, ...]
    top1: float
    scored: int
    same_bits_as: str | None = None
    checked: int = 0

    @property
    def kl(self) -> Estimate:
        return sequence_mean(self.kl_units)

    @property
    def perplexity(self) -> Estimate:
        return sequence_perplexity(self.nll_units)


@dataclass(frozen=True)
class _Score:
    """One sequence of one recipe: mean KL and nll in nats, positions with the reference's top-1, and its bits."""

    kl: float
    nll: float
    agree: int
    print: str


def run_quality(
    pool: Pool[Any],
    specs: Sequence[RecipeSpec],
    sequences: Sequence[Sequence[int]],
    profile: Profile,
    tick: Progress,
) -> dict[str, Quality]:
    """Score every live recipe. `sequences[s]`: kl_length + 1 ids, the last one only as a target.

    Raises what `evals.protocol.scored_logits` raises (`LeverNotApplied`, `BadLogits`), and `evals.kl.NegativeKL`.
    """
    live = [spec for spec in specs if spec.name in pool.live]
    reference = RecipeSpec(REFERENCE_STACK, "native")
    if reference not in live:
        raise errors.InvalidValue("quality reference", reference.name, "a recipe that runs")
    ordered = sorted(live, key=lambda spec: (spec != reference, spec.stack != REFERENCE_STACK))
    check = min(profile.kl_check, len(sequences))
    scores: dict[str, list[_Score]] = {spec.name: [] for spec in ordered}
    known: dict[tuple[int, str], _Score] = {}
    twins: dict[str, str] = {}
    plan = profile.kl_plan
    rows = plan.rows
    total = sum(len(sequences) if spec.stack == REFERENCE_STACK else check for spec in ordered)
    done = 0

    def logits_of(spec: RecipeSpec, s: int) -> np.ndarray | None:
        """The scored rows [N, V] of one sequence, or None once the recipe is refused."""
        ids = tuple(sequences[s][: profile.kl_length])
        trace = pool.ask(spec.name, plan.probe(ids))
        return None if trace is None else scored_logits(trace, pool.configs[spec.name], plan, s)

    def score(s: int, base: np.ndarray, kept: np.ndarray) -> _Score:
        """Equal bits score equally, so each distinct set of logits is scored once."""
        mark = hashlib.sha256(kept.tobytes()).hexdigest()
        if (s, mark) not in known:
            targets = np.asarray(sequences[s][rows.start + 1 : rows.stop + 1])
            known[s, mark] = _Score(
                kl=0.0 if kept is base else float(kl_divergence(base, kept).mean()),
                nll=float(token_nll(kept, targets).mean()),
                agree=int((base.argmax(axis=1) == kept.argmax(axis=1)).sum()),
                print=mark,
            )
        return known[s, mark]

    block = 1 if pool.resident else BLOCK
    for start in range(0, len(sequences), block):
        held: dict[int, np.ndarray] = {}
        for spec in ordered:
            for s in range(start, min(start + block, len(sequences))):
                if spec.name in twins or spec.name in pool.refused:
                    continue
                tick(f"{spec.name}, sequence {s + 1}/{len(sequences)}", done, total)
                kept = logits_of(spec, s)
                done, total = done + 1, max(total, done + 1)
                if kept is None:
                    continue
                if spec == reference:
                    held[s] = kept
                scores[spec.name].append(score(s, held[s], kept))
                twin = RecipeSpec(REFERENCE_STACK, spec.kv).name
                if spec.stack != REFERENCE_STACK and s == check - 1 and twin in scores and check < len(sequences):
                    if scores[spec.name] == scores[twin][:check]:
                        twins[spec.name] = twin
                    else:
                        total += len(sequences) - check
            if reference.name in pool.refused:
                raise OracleRefused(pool.refused[reference.name])
    tick("scored", total, total)
    return {
        spec.name: _finish(spec.name, scores, twins.get(spec.name), len(rows), check)
        for spec in ordered
        if spec.name not in pool.refused
    }


def _finish(name: str, scores: dict[str, list[_Score]], twin: str | None, positions: int, check: int) -> Quality:
    own = scores[twin or name]
    return Quality(
        recipe=name,
        kl_units=tuple(score.kl for score in own),
        nll_units=tuple(score.nll for score in own),
        top1=sum(score.agree for score in own) / (positions * len(own)),
        scored=positions * len(own),
        same_bits_as=twin,
        checked=positions * check if twin else 0,
    )
