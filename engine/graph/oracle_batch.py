"""Why a model's rows cannot lie as in mlx-lm's BatchGenerator (engine.kv.batched): because that has no such batch, or
none that is right, or because it is not built here."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from engine.graph.rows import parts, unfit_for_rows
from engine.graph.spec import ArchSpec
from engine.kv.plan import KVPlan
from engine.kv.scheme import NATIVE

# As the register shows (oracles/faults/batch_crashes.py, ragged.py).
RAISING = frozenset({"gemma2", "internlm3", "gpt_bigcode", "phi3small", "llama4", "deepseek_v41"})
WRONG = frozenset(
    {
        *("mamba", "jamba", "bailing_moe_linear", "rwkv7", "recurrent_gemma", "baichuan_m1", "longcat_flash_ngram"),
        *("nemotron_h", "afm7", "olmo_hybrid"),
    }
)
# Specs of recurrent mixers that know padding.
PADDED = frozenset({"DeltaSpec", "KdaSpec", "PlamoSsmSpec", "ShortConvSpec", "SsmSpec"})


@dataclass(frozen=True)
class NoBatch:
    """Why there is none. theirs: whether mlx-lm has none that is right."""

    why: str
    theirs: bool


def no_oracle_batch(spec: ArchSpec, kv: KVPlan, family: str) -> NoBatch | None:
    """What keeps a model's rows out of such a batch; None where nothing does. family: its model_type."""
    for plan in kv.caches:
        if plan.scheme is not NATIVE:
            return NoBatch("mlx-lm's batch takes no packed caches", theirs=True)
        if plan.spec.kind == "chunked":
            return NoBatch("mlx-lm's batch takes no caches of chunks", theirs=True)
        if plan.spec.keep:
            return NoBatch("mlx-lm's batch loses the first tokens that a ring keeps", theirs=True)
    if family in RAISING:
        return NoBatch(f"mlx-lm's batch raises for {family}", theirs=True)
    if family in WRONG:
        return NoBatch(f"mlx-lm's batch computes the shorter rows of {family} wrongly", theirs=True)
    unfit = unfit_for_rows(spec, one_buffer=True)
    if unfit:
        return NoBatch(unfit, theirs=False)
    for part in parts(spec):
        name = type(part).__name__
        if vars(part).get("plain"):
            return NoBatch("the plain recurrence takes no padding", theirs=False)
        # A layer, a pair of mixers and the whole model say what their parts keep.
        if name not in PADDED and _keeps_state(part) and not any(map(_keeps_state, list(parts(part))[1:])):
            return NoBatch(f"the states of {name} take no padding", theirs=False)
    return None


def _keeps_state(part: Any) -> bool:
    return any(cache.kind == "state" for cache in getattr(part, "caches", ()))
