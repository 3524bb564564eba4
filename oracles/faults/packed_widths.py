"""mlx-lm: a fresh QuantizedKVCache cannot take 3, 5 or 6 bits at many head sizes."""

from __future__ import annotations

from oracles.faults.entry import Fault, Shown

# bits -> a head size in use
ODD = {3: 256, 5: 128, 6: 128}
# Widths that divide 32 work, so that the probe shows that it can tell.
EVEN = {2: 256, 4: 128, 8: 128}


def _dies(bits: int, head_dim: int) -> str:
    """What a first token's write raises; "" where it does not."""
    import mlx.core as mx
    from mlx_lm.models.cache import QuantizedKVCache

    token = mx.ones((1, 1, 1, head_dim))
    try:
        mx.eval(QuantizedKVCache(group_size=64, bits=bits).update_and_fetch(token, token))
    except ValueError as error:
        return str(error)
    return ""


def probe(model: str) -> Shown:
    """Write one token to fresh caches of every width, and convert a plain cache to the odd ones."""
    import mlx.core as mx
    from mlx_lm.models.cache import KVCache

    for bits, head_dim in ODD.items():
        plain = KVCache()
        plain.update_and_fetch(*[mx.ones((1, 1, 1, head_dim))] * 2)
        mx.eval(plain.to_quantized(group_size=64, bits=bits).keys)
    died = {bits: _dies(bits, head_dim) for bits, head_dim in ODD.items()}
    live = all(died.values()) and not any(_dies(bits, head_dim) for bits, head_dim in EVEN.items())
    seen = "; ".join(f"{bits} bits, heads of {ODD[bits]}: {text or 'written'}" for bits, text in died.items())
    return Shown(live, f"{seen} (all three converted from a plain cache; 2, 4, 8 written)")


FAULT = Fault(
    oracle="mlx-lm",
    where="models/cache.py QuantizedKVCache.update_and_fetch (head size // (32 // bits) words instead of "
    "head size * bits / 32)",
    what="the first write to an empty cache of 3, 5 or 6 bits raises at many head sizes; converting a plain one works",
    ours="every width works from the first token on, with :on-write",
    probe=probe,
)
