"""What each lever is for a model on this machine, and at this moment: fused maps, lean operations, compiled steps and
the BLAS read from the live objects; dtype, chunk, recurrence and argmax as the engine was built with them."""

from __future__ import annotations

from collections.abc import Set
from dataclasses import replace

from engine.backend import Machine
from engine.config import EngineConfig
from engine.errors import InvalidValue
from engine.graph.compiled import CompiledStep, unfit_for_compile
from engine.graph.decoder import Decoder
from engine.graph.fused import count_joined
from engine.graph.lean import count_lean
from engine.kv.plan import KVPlan


def fitting(
    config: EngineConfig, left_out: Set[str], machine: Machine, decoder: Decoder, kv: KVPlan, rows: str
) -> EngineConfig:
    """`config` as this model and plan can have it. left_out: levers that nobody asked for, whose machine default gives
    way to the general one; rows: how rows run (engine.sched.modes). Raises `InvalidValue` for one that was asked.
    """
    if config.compile != "step":
        return config
    unfit = unfit_for_compile(decoder, kv, machine.device, machine.arch)
    if rows == "batched":
        unfit = unfit or "mlx-lm's batch, which batch_mode=composition has here, compiles no step"
    if unfit and "compile" not in left_out:
        raise InvalidValue("compile", "step", f"none: {unfit}")
    return replace(config, compile="none") if unfit else config


def live_levers(
    config: EngineConfig, machine: Machine, decoder: Decoder, compiled: CompiledStep | None
) -> dict[str, str]:
    """Lever -> its value, with a count of what it did in brackets where it does something: "step (48 steps)". A lever
    that was asked and did nothing reads as if it had not been."""
    joined, few = count_joined(decoder), count_lean(decoder)
    steps = 0 if compiled is None else compiled.counts.steps
    return {
        "dtype": config.dtype,
        "prefill_chunk": str(config.prefill_chunk),
        "recurrence": config.recurrence,
        "fuse": f"quantized ({joined} modules)" if joined else "none",
        "argmax": config.argmax,
        "ops": f"lean ({few} modules)" if few else "mlx",
        "compile": f"step ({steps} steps)" if steps else "none",
        "blas": machine.blas,
    }
