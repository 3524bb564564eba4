"""What each lever is at this moment: fused maps, lean operations, compiled steps and the BLAS read from the live
objects; dtype, chunk, recurrence and argmax as the engine was built with them."""

from __future__ import annotations

from engine.backend import Machine
from engine.config import EngineConfig
from engine.graph.compiled import CompiledStep
from engine.graph.decoder import Decoder
from engine.graph.fused import count_joined
from engine.graph.lean import count_lean


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
