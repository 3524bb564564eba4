"""Rules that turn a checkpoint's names and shapes into mlx-lm's: what `sanitize` does there, as data.

A rule maps a dict of arrays to a dict of arrays, and leaves alone what it does not name: a folder that mlx-lm saved
passes through every rule unchanged.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

import mlx.core as mx

Arrays = dict[str, mx.array]


@dataclass(frozen=True)
class Drop:
    """Forget keys that match one of the patterns (re.search)."""

    patterns: tuple[str, ...]

    def __call__(self, arrays: Arrays) -> Arrays:
        found = re.compile("|".join(f"(?:{p})" for p in self.patterns))
        return {k: v for k, v in arrays.items() if not found.search(k)}


@dataclass(frozen=True)
class Rename:
    """re.sub on every key."""

    pattern: str
    to: str

    def __call__(self, arrays: Arrays) -> Arrays:
        return {re.sub(self.pattern, self.to, k): v for k, v in arrays.items()}


@dataclass(frozen=True)
class Stack:
    """One array per expert becomes one stacked array.

    pattern: matches a whole key and has a group named `e`, the expert's number; to: the key without it.
    """

    pattern: str
    to: str

    def __call__(self, arrays: Arrays) -> Arrays:
        kept: Arrays = {}
        parts: dict[str, dict[int, mx.array]] = {}
        for key, array in arrays.items():
            match = re.fullmatch(self.pattern, key)
            if match is None:
                kept[key] = array
            else:
                parts.setdefault(match.expand(self.to), {})[int(match["e"])] = array
        for key, by_expert in parts.items():
            kept[key] = mx.stack([by_expert[e] for e in sorted(by_expert)])
        return kept


@dataclass(frozen=True)
class Split:
    """One array becomes several: pattern matches a whole key, cut(array) gives the parts, one for each key of `to`."""

    pattern: str
    to: tuple[str, ...]
    cut: Callable[[mx.array], list[mx.array]]

    def __call__(self, arrays: Arrays) -> Arrays:
        made: Arrays = {}
        for key, array in arrays.items():
            match = re.fullmatch(self.pattern, key)
            if match is None:
                made[key] = array
            else:
                made |= {match.expand(t): part for t, part in zip(self.to, self.cut(array), strict=True)}
        return made


@dataclass(frozen=True)
class Join:
    """Arrays behind each other along the first axis become one, where all of them are there: pattern matches a whole
    key and has a group `part`, one of `order`; to: the key of them all."""

    pattern: str
    to: str
    order: str | tuple[str, ...]

    def __call__(self, arrays: Arrays) -> Arrays:
        found: dict[str, dict[str, str]] = {}
        for key in arrays:
            if match := re.fullmatch(self.pattern, key):
                found.setdefault(match.expand(self.to), {})[match["part"]] = key
        whole = {key: [by[p] for p in self.order] for key, by in found.items() if len(by) == len(self.order)}
        joined = {key: mx.concatenate([arrays[part] for part in parts]) for key, parts in whole.items()}
        used = {part for parts in whole.values() for part in parts}
        return {key: array for key, array in arrays.items() if key not in used} | joined


@dataclass(frozen=True)
class DropLayers:
    """Forget the layers from number `first` on: they predict more tokens than the next one."""

    first: int

    def __call__(self, arrays: Arrays) -> Arrays:
        found = ((re.match(r"model\.layers\.(\d+)\.", key), key, array) for key, array in arrays.items())
        return {key: array for match, key, array in found if match is None or int(match[1]) < self.first}


@dataclass(frozen=True)
class Change:
    """The value under every key that matches (re.search) is changed; only_if: some key must match this, or none is."""

    pattern: str
    change: Callable[[mx.array], mx.array]
    only_if: str | None = None

    def __call__(self, arrays: Arrays) -> Arrays:
        if self.only_if is not None and not any(re.search(self.only_if, k) for k in arrays):
            return arrays
        return {k: self.change(v) if re.search(self.pattern, k) else v for k, v in arrays.items()}


@dataclass(frozen=True)
class Float8Blocks:
    """Bytes of 8-bit floats under `<name>` and their scales under `<name>_scale_inv` become one bfloat16 array.

    <name> [O, I] has a scale per block or one for all, stacked experts [E, O, I] one each, [E, 1, 1] (op order of
    mlx-lm 0.32.2, models/mimo_v2_flash.py, mistral4.py).
    """

    block: int = 128

    def __call__(self, arrays: Arrays) -> Arrays:
        kept = {k: v for k, v in arrays.items() if not k.endswith("_scale_inv")}
        for key in arrays.keys() - kept.keys():
            name = key.removesuffix("_scale_inv")
            if name in kept:
                kept[name] = self._dense(kept[name], arrays[key])
        return kept

    def _dense(self, codes: mx.array, scales: mx.array) -> mx.array:
        weight = mx.from_fp8(codes, dtype=mx.bfloat16)
        if scales.size == 1 or scales.ndim == 3:
            return (weight * scales).astype(mx.bfloat16)
        rows, columns = (n * self.block for n in scales.shape)
        weight = mx.pad(weight, [(0, rows - weight.shape[0]), (0, columns - weight.shape[1])])
        blocks = weight.reshape(scales.shape[0], self.block, scales.shape[1], self.block)
        weight = (blocks * scales[:, None, :, None]).reshape(rows, columns)
        return weight[: codes.shape[0], : codes.shape[1]].astype(mx.bfloat16)


@dataclass(frozen=True)
class Under:
    """Other rules for the keys below `at`, which they see without it."""

    at: str
    rules: tuple[Callable[[Arrays], Arrays], ...]

    def __call__(self, arrays: Arrays) -> Arrays:
        below = f"{self.at}."
        inner = {k.removeprefix(below): v for k, v in arrays.items() if k.startswith(below)}
        for rule in self.rules:
            inner = rule(inner)
        return {k: v for k, v in arrays.items() if not k.startswith(below)} | {below + k: v for k, v in inner.items()}


def halves(axis: int) -> Callable[[mx.array], list[mx.array]]:
    """Cut an array into two along `axis`."""
    return lambda array: list(mx.split(array, 2, axis=axis))


def stacked(at: str, to: str, names: dict[str, str] | None = None, experts: str = "experts") -> tuple[Stack, ...]:
    """`<at>.experts.<e>.<name>.<part>` -> `<at>.<to>.<new name>.<part>`; names default to gate, up and down."""
    pairs = names or {n: n for n in ("gate_proj", "up_proj", "down_proj")}
    return tuple(
        Stack(rf"(.*\.{at})\.{experts}\.(?P<e>\d+)\.{old}\.(\w+)", rf"\1.{to}.{new}.\3") for old, new in pairs.items()
    )


def transposed_experts(at: str, to: str) -> tuple[Split, Split]:
    """`<at>.experts.gate_up_proj` [experts, in, 2 out] and `<at>.experts.down_proj` [experts, in, out] become
    `<at>.<to>.{gate,up,down}_proj.weight` [experts, out, in]: views, as in mlx-lm, whose products have other bits."""

    def cut(parts: int) -> Callable[[mx.array], list[mx.array]]:
        return lambda array: [part.swapaxes(1, 2) for part in mx.split(array, parts, axis=2)]

    return (
        Split(
            rf"(.*\.{at})\.experts\.gate_up_proj", tuple(rf"\1.{to}.{n}_proj.weight" for n in ("gate", "up")), cut(2)
        ),
        Split(rf"(.*\.{at})\.experts\.down_proj", (rf"\1.{to}.down_proj.weight",), cut(1)),
    )


ROTARY = Drop((r"rotary_emb\.inv_freq",))
UNTIE = Drop((r"^lm_head\.weight$",))  # a tied model's copy of its embedding


def _channels_last(filters: mx.array) -> mx.array:
    """Filters of single channels [C, 1, W] as [C, W, 1]; those that are so stay."""
    return filters.swapaxes(1, 2) if filters.ndim == 3 and filters.shape[-1] > 1 else filters


FILTERS = Change(r"conv(_?1d)?\.weight$", _channels_last)
