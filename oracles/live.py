"""What the caches of a run really are, and whether that is what was asked. No MLX here: it reads descriptions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from engine import parse_kv
from oracles.contract import SchemeNotLive, StackConfig, Trace

NATIVE = "native"
# What an architecture keeps unquantised by its own rule: a window's ring, a chunk of attention.
DENSE = (NATIVE, "rotating", "chunked")


def is_state(cache: Mapping[str, Any]) -> bool:
    """Whether a cache is a recurrent state: it has no keys, and no scheme is asked of it."""
    return str(cache.get("layout", "")).startswith("state")


def scheme_name(bits: int | None, group_size: int | None) -> str:
    """The name of one layer's scheme: "native" or, for instance, "affine8:g64"."""
    return NATIVE if bits is None else f"affine{bits}:g{group_size}"


def live_scheme(caches: Sequence[Mapping[str, Any]]) -> str:
    """The scheme of all layers that keep keys, or "mixed" where they differ; "native" where none does."""
    names = {str(cache["scheme"]) for cache in caches if not is_state(cache)} or {NATIVE}
    return names.pop() if len(names) == 1 else "mixed"


def planned_schemes(kv: str, layers: int) -> tuple[str, ...]:
    """The scheme of each layer that the notation `kv` asks for, once its start is reached.

    Raises `errors.CorruptFile` and `errors.InvalidValue` for a plan of a mixed request that is not allowed.
    """
    return tuple(NATIVE if asked is None else asked.name for asked in parse_kv(kv).layers(layers))


def wanted_live(kv: str, caches: Sequence[Mapping[str, Any]]) -> tuple[str, ...]:
    """What `live_scheme` of these caches may say once the scheme that `kv` asks for is on: its name, or "mixed" where
    layers differ; with :skip either.

    Raises as `planned_schemes`.
    """
    planned = planned_schemes(kv, len(caches))
    names = {name for name, cache in zip(planned, caches, strict=True) if not is_state(cache)} or {NATIVE}
    if len(names) > 1:
        return ("mixed",)
    return (*names, "mixed") if parse_kv(kv).skip else (*names,)


def kv_status(kv: str, caches: Sequence[Mapping[str, Any]]) -> str:
    """The live scheme in words; "native (start not reached)" when a quantised one was asked and never came on."""
    live = live_scheme(caches)
    return f"{NATIVE} (start not reached)" if live == NATIVE and parse_kv(kv).kind != NATIVE else live


def require_scheme(trace: Trace, kv: str) -> None:
    """Raise `SchemeNotLive` unless every layer's live cache is of the scheme that `kv` asks for; with :skip some may be
    native, not all."""
    caches = trace.doc["caches"]
    live = tuple(str(cache["scheme"]) for cache in caches)
    wanted = planned_schemes(kv, len(caches))
    skip = parse_kv(kv).skip and any(a == w != NATIVE for a, w in zip(live, wanted, strict=True))
    fits = [
        a == w or ((w == NATIVE or skip) and a.split(":")[0] in DENSE) or is_state(cache)
        for a, w, cache in zip(live, wanted, caches, strict=True)
    ]
    if not caches or not all(fits):
        pairs = enumerate(zip(live, wanted, fits, strict=True))
        wrong = [f"layer {i}: {a} instead of {w}" for i, (a, w, fit) in pairs if not fit]
        raise SchemeNotLive(
            f"kv={kv!r} was asked, but the live caches are {trace.doc['kv_status']!r}"
            f" ({'; '.join(wrong[:3]) or 'no caches'}); nothing is recorded"
        )


def idle_levers(trace: Trace, config: StackConfig) -> str:
    """Which of the configuration's levers are not what the live engine says they are, in words; "" for none.

    Only the engine says; of another stack nothing is known but its caches.
    """
    if config.stack != "engine":
        return ""
    live = trace.doc["levers"]
    asked = {
        "dtype": config.dtype,
        "prefill_chunk": str(config.chunk),
        **({} if live.get("blas") == "none" else {"blas": config.blas}),  # a GPU has no choice of it
        "mlx_compile": "on" if config.compile else "off",
        **dict(config.levers),
        **{name: str(value).partition(":")[0] for name, value in config.sampling if name == "sampler"},
    }
    wrong = [
        f"{name}={value} was asked and is {live[name]}"
        for name, value in asked.items()
        if name in live and value != "auto" and live[name].split(" ")[0] != value
    ]
    return "; ".join(wrong)
