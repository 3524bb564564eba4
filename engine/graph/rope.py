"""Rotary embeddings: every variant ends in one `Rope`, with a base or with a table of frequencies.

Letters: B rows, H heads, L length, D head dimension. Formulas as in mlx-lm 0.32.2, models/rope_utils.py.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import mlx.core as mx

from engine.errors import InvalidValue, UnsupportedConfig
from engine.graph.spec import RopeSpec
from engine.kv.base import Offset

_NUMBERS = {
    *("alpha", "factor", "low_freq_factor", "high_freq_factor", "original_max_position_embeddings"),
    *("beta_fast", "beta_slow", "mscale", "mscale_all_dim", "partial_rotary_factor"),
}


class Angles(NamedTuple):
    """Cosines and signed sines, as they lie over what they turn (engine.graph.lean)."""

    cos: mx.array
    sin: mx.array


class Rope:
    """x [B, H, L, D], offset -> x with its first `dims` dimensions turned.

    base: a number, or its growth with the length; or else freqs [dims/2]. gain: by what those dimensions are multiplied
    first. key: ropes of one key turn alike. turned: who turns, in place of `turn` (engine.graph.lean).
    """

    def __init__(
        self,
        spec: RopeSpec,
        *,
        base: float | Callable[[int], float] | None = None,
        scale: float = 1.0,
        freqs: mx.array | None = None,
        gain: float | None = None,
    ) -> None:
        self.dims, self.traditional, self.key = spec.dims, spec.traditional, repr(spec)
        self.gain, self._base, self._scale, self._freqs = gain, base, scale, freqs
        self.turned: Callable[[Rope, mx.array, Offset | Angles], mx.array] | None = None

    @property
    def grows(self) -> bool:
        """Whether its base follows from the length, so that an offset must be a number."""
        return callable(self._base)

    def __call__(self, x: mx.array, at: Offset | Angles) -> mx.array:
        if self.gain is not None:
            x = x.at[..., : self.dims].multiply(self.gain)
        if self.turned is not None:
            return self.turned(self, x, at)
        assert not isinstance(at, Angles)
        return self.turn(x, at)

    def turn(self, x: mx.array, offset: Offset) -> mx.array:
        """The rotation alone."""
        base = self._base
        if callable(base):
            assert isinstance(offset, int)
            base = base(x.shape[-2] + offset)
        return mx.fast.rope(
            x,
            self.dims,
            traditional=self.traditional,
            base=base,
            scale=self._scale,
            offset=offset,
            freqs=self._freqs,
        )


def build_rope(spec: RopeSpec) -> Rope:
    """The rope of a spec; an unknown type is `UnsupportedConfig`, naming the known ones."""
    scaling, kind = dict(spec.scaling), spec.kind
    if not isinstance(kind, str) or kind not in _VARIANTS:
        raise UnsupportedConfig(f"rope_scaling type {kind!r}; known: {', '.join(sorted(_VARIANTS))}")
    if kind != "default":
        _check_numbers(scaling, spec.dims)
    try:
        return _VARIANTS[kind](spec, scaling)
    except KeyError as error:
        raise UnsupportedConfig(f"rope_scaling of type {kind!r} lacks {error.args[0]!r}") from error


def _check_numbers(scaling: dict[str, Any], dims: int) -> None:
    """Raise InvalidValue for what is no number and would be computed with."""
    for key in scaling.keys() & _NUMBERS:
        value = scaling[key]
        number = isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)
        if not number or value < 0 or (value == 0 and not key.startswith("mscale")):
            raise InvalidValue(f"config.json rope_scaling.{key}", value, "a finite number > 0")
    factors = scaling.get("long_factor", 1.0)
    each = factors if isinstance(factors, list) else [factors]
    if not all(isinstance(v, (int, float)) for v in each) or len(each) not in (1, dims // 2):
        raise InvalidValue("config.json rope_scaling.long_factor", factors, f"a number or a list of {dims // 2}")
    if scaling.get("partial_rotary_factor", 1.0) > 1:
        raise InvalidValue("config.json partial_rotary_factor", scaling["partial_rotary_factor"], "a number in (0, 1]")


def _with_base(spec: RopeSpec, scale: float) -> Rope:
    return Rope(spec, base=spec.base, scale=scale)


def _with_freqs(spec: RopeSpec, freqs: mx.array, gain: float = 1.0, *, always: bool = False) -> Rope:
    """`gain` multiplies the rotated dimensions first (yarn's mscale), also where it is 1 with `always`."""
    return Rope(spec, freqs=freqs, gain=gain if always or gain != 1.0 else None)


def _default(spec: RopeSpec, scaling: dict[str, Any]) -> Rope:
    return _with_base(spec, 1.0)


def _linear(spec: RopeSpec, scaling: dict[str, Any]) -> Rope:
    return _with_base(spec, 1 / scaling["factor"])


def _dynamic(spec: RopeSpec, scaling: dict[str, Any]) -> Rope:
    """NTK-aware: the base grows with the sequence once it is longer than the trained length."""
    factor, trained, dims = scaling["factor"], spec.max_positions, spec.dims
    if trained is None:
        raise KeyError("max_position_embeddings")

    def base(length: int) -> float:
        return spec.base * ((factor * max(length, trained) / trained) - (factor - 1)) ** (dims / (dims - 2))

    return Rope(spec, base=base)


def _llama3(spec: RopeSpec, scaling: dict[str, Any]) -> Rope:
    factor = scaling["factor"]
    low, high = scaling.get("low_freq_factor", 1.0), scaling.get("high_freq_factor", 4.0)
    trained = scaling.get("original_max_position_embeddings", 8192)
    freqs = spec.base ** (mx.arange(0, spec.dims, 2) / spec.dims)  # [D/2]
    wavelengths = 2 * mx.pi * freqs
    long, short = trained / low, trained / high
    freqs = mx.where(wavelengths > long, freqs * factor, freqs)
    between = (wavelengths > short) & (wavelengths < long)
    smooth = (trained / wavelengths - low) / (high - low)
    return _with_freqs(spec, mx.where(between, freqs / ((1 - smooth) / factor + smooth), freqs))


def mscale(factor: float, weight: float) -> float:
    """By how much yarn of that factor raises what it turns, or an attention's scale."""
    return 1.0 if factor <= 1 else 0.1 * weight * math.log(factor) + 1.0


def yarn_freqs(spec: RopeSpec, scaling: dict[str, Any]) -> mx.array:
    """The frequencies [D/2] between extrapolated and interpolated ones."""
    factor, dims = scaling["factor"], spec.dims
    trained = scaling.get("original_max_position_embeddings", 4096)

    def correction(rotations: float) -> float:
        return (dims * math.log(trained / (rotations * 2 * math.pi))) / (2 * math.log(spec.base))

    low = max(math.floor(correction(scaling.get("beta_fast", 32))), 0)
    high: float = min(math.ceil(correction(scaling.get("beta_slow", 1))), dims - 1)
    if low == high:
        high += 0.001  # the ramp below would divide by zero
    ramp = mx.clip((mx.arange(dims // 2, dtype=mx.float32) - low) / (high - low), 0, 1)
    keep = 1.0 - ramp
    extrapolated = spec.base ** (mx.arange(0, dims, 2, dtype=mx.float32) / dims)
    interpolated = factor * extrapolated
    return (interpolated * extrapolated) / (interpolated * keep + extrapolated * (1 - keep))


def _yarn(spec: RopeSpec, scaling: dict[str, Any]) -> Rope:
    factor = scaling["factor"]
    gain = mscale(factor, scaling.get("mscale", 1)) / mscale(factor, scaling.get("mscale_all_dim", 0))
    return _with_freqs(spec, yarn_freqs(spec, scaling), gain)


def _longrope(spec: RopeSpec, scaling: dict[str, Any]) -> Rope:
    """Only the long factors are used, at every length; rotated values are scaled first ("gain" says by how much)."""
    trained = scaling["original_max_position_embeddings"]
    freqs = spec.base ** (mx.arange(0, spec.dims, 2, dtype=mx.float32) / spec.dims)
    factor = (spec.max_positions or trained) / trained
    gain = 1.0 if factor <= 1.0 else math.sqrt(1 + math.log(factor) / math.log(trained))
    freqs = mx.array(scaling["long_factor"], dtype=mx.float32) * freqs
    return _with_freqs(spec, freqs, scaling.get("gain") or gain, always=True)


def _proportional(spec: RopeSpec, scaling: dict[str, Any]) -> Rope:
    """Frequencies over the whole head, of which only the first part turns."""
    rotated = int(spec.dims * scaling.get("partial_rotary_factor", 1.0))
    exponents = mx.arange(0, rotated, 2, dtype=mx.float32) / spec.dims
    still = mx.full(((spec.dims - rotated) // 2,), mx.inf)
    return _with_freqs(spec, mx.concatenate([scaling.get("factor", 1.0) * (spec.base**exponents), still]))


def _positions(spec: RopeSpec, scaling: dict[str, Any]) -> Rope:
    """Positions times a scale (phi3small)."""
    return _with_base(spec, scaling["scale"])


def _mrope(spec: RopeSpec, scaling: dict[str, Any]) -> Rope:
    """On text the three position streams agree: a plain rope."""
    sections = scaling.get("mrope_section", [])
    if not isinstance(sections, list) or len(sections) != 3:
        raise UnsupportedConfig(f"rope_scaling mrope_section={sections!r}; known: three sections")
    return _with_base(spec, 1.0)


def _ntk_alpha(spec: RopeSpec, scaling: dict[str, Any]) -> Rope:
    """A base enlarged once by alpha (hunyuan)."""
    base = spec.base * scaling.get("alpha", 1.0) ** (spec.dims / (spec.dims - 2))
    return _with_freqs(spec, base ** (mx.arange(0, spec.dims, 2) / spec.dims))


def _reversed(spec: RopeSpec, scaling: dict[str, Any]) -> Rope:
    """The rotation's opposite sense; "exp" says how the oracle computes the powers (nanochat) or not (talkie)."""
    if scaling.get("exp"):
        half = spec.dims // 2
        return _with_freqs(spec, -mx.exp(mx.arange(0.0, half, dtype=mx.float32) * (math.log(spec.base) / half)))
    return _with_freqs(spec, -(spec.base ** (mx.arange(0, spec.dims, 2, dtype=mx.float32) / spec.dims)))


_VARIANTS: dict[str, Callable[[RopeSpec, dict[str, Any]], Rope]] = {
    "default": _default,
    "linear": _linear,
    "dynamic": _dynamic,
    "llama3": _llama3,
    "yarn": _yarn,
    "deepseek_yarn": _yarn,
    "telechat3-yarn": _yarn,
    "longrope": _longrope,
    "proportional": _proportional,
    "mrope": _mrope,
    # Names of ours, for what mlx-lm writes in a model's file instead of rope_utils.py.
    "ntk-alpha": _ntk_alpha,
    "reversed": _reversed,
    "positions": _positions,
}
