"""The sampler `hlg`: log-probabilities through the tone curve of hybrid log-gamma. V: vocabulary.

The curve is straight around a pivot that lies `offset` nats below the best token, and logarithmic beyond `width`: the
shoulder keeps the best tokens from taking all, the toe lifts the tail. `temperature` T gives the slope of the straight
part. With z the log-probability of a token less that of the pivot, w the width, s the shoulder and t the toe, its
score is

    z > w      (w + s ln(1 + (z - w) / s)) / T
    |z| <= w   z / T
    z < -w     -(w + t ln(1 + (-z - w) / t)) / T

and the softmax of the scores is drawn from. Value and slope are continuous at z = w and z = -w. It takes the idea of
hybrid log-gamma, the transfer function of HDR television (ITU-R BT.2100: one law below a knee, a logarithm above it),
not its constants. No other package is known to ship it as a sampler, so that the Lab judges it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, fields

import mlx.core as mx

from engine.errors import InvalidValue, UnknownField

NAME = "hlg"
LARGEST = 1e6
NUMBER = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")  # float() takes 1_0 for 10, and nan


@dataclass(frozen=True, kw_only=True)
class HLG:
    """All four in nats. width: of the straight part on either side of the pivot; shoulder, toe: how far beyond it the
    curve has half its slope; offset: of the pivot below the best token, at 0 there is no shoulder."""

    width: float = 1.0
    shoulder: float = 2.0
    toe: float = 8.0
    offset: float = 2.0

    def __post_init__(self) -> None:
        for name, least, allowed in (
            ("width", 0.0, "a number >= 0"),
            ("shoulder", 1e-3, "a number >= 0.001"),
            ("toe", 1e-3, "a number >= 0.001"),
            ("offset", 0.0, "a number >= 0"),
        ):
            value = self.__dict__[name]
            if not least <= value <= LARGEST:  # nan is in no range
                raise InvalidValue(f"sampler {NAME} {name}", value, f"{allowed}, in nats")


def parse_hlg(text: str) -> HLG:
    """`hlg`, or `hlg:width=1,shoulder=2,toe=8,offset=2` with any of the four.

    Errors: `InvalidValue`, `UnknownField`.
    """
    name, colon, rest = text.partition(":")
    known = [field.name for field in fields(HLG)]
    if name != NAME or (colon and not rest):
        raise InvalidValue("sampler", text, f"{NAME}, or {NAME}:NAME=NUMBER,... of {', '.join(known)}")
    values: dict[str, float] = {}
    for word in rest.split(",") if rest else ():
        key, equals, number = word.partition("=")
        if key not in known:
            raise UnknownField(f"sampler {NAME}", key, known)
        if not equals or key in values or not NUMBER.fullmatch(number):
            raise InvalidValue(f"sampler {NAME}", word, f"{key}=NUMBER, once")
        values[key] = float(number)
    return HLG(**values)


def hlg_scores(logprobs: mx.array, temperature: float, curve: HLG) -> mx.array:
    """logprobs [..., V], of which some may be -inf, to scores [..., V] in float32, whose softmax is drawn from."""
    x = logprobs.astype(mx.float32)
    z = x - mx.max(x, axis=-1, keepdims=True) + curve.offset
    above = curve.shoulder * mx.log1p(mx.maximum(z - curve.width, 0) / curve.shoulder)
    below = curve.toe * mx.log1p(mx.maximum(-z - curve.width, 0) / curve.toe)
    return (mx.clip(z, -curve.width, curve.width) + above - below) * (1.0 / temperature)
