"""The notation of a KV scheme, as users write it.

native | bf16
kv8 | kv4:g32 | kv8/4            uniform, bits of keys / of values, groups of 64 unless :g32 or :g128
mixed:<kv_config.json>           per layer: a list of {layer_idx, bits or k_bits and v_bits, group_size}
turbo:k8v3                       TurboQuant: affine keys, rotated values

:start=N   layers are converted once N tokens are in them (mlx-lm's schedule; 0 unless given)
:on-write  packed from the first token on, so that no bit depends on how the prompt was cut
:skip      a layer that cannot honour the request stays native, and is reported
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from engine.errors import CorruptFile, InvalidValue
from engine.levers import LEVERS

BITS = (2, 3, 4, 5, 6, 8)
GROUP_SIZES = (32, 64, 128)
TURBO_KEY_BITS, TURBO_VALUE_BITS = (2, 4, 5, 8), (2, 3, 4, 5, 8)
ALLOWED = (
    "native, kv8, kv4 (kv2 kv3 kv5 kv6), kv8/4 (bits of keys / of values), each with :g32|:g64|:g128; "
    "mixed:<kv_config.json>; turbo:k8v3; all with :start=N or :on-write, and :skip"
)
ON_WRITE = ":on-write"
_UNIFORM = re.compile(r"kv([0-9])(?:/([0-9]))?")
_TURBO = re.compile(r"k([0-9])v([0-9])")
_OPTION = re.compile(r"(.*):(g(?:32|64|128)|start=[0-9]+|on-write|skip)")


@dataclass(frozen=True, kw_only=True)
class LayerRequest:
    """What one layer is asked for. turbo: TurboQuant's storage, whose groups are fixed."""

    bits: int
    value_bits: int
    group_size: int = 64
    turbo: bool = False

    @property
    def name(self) -> str:
        """As reports, plans and cache keys call the scheme: "affine8:g64", "affine8/4:g32", "turbo:k8v3"."""
        if self.turbo:
            return f"turbo:k{self.bits}v{self.value_bits}"
        widths = str(self.bits) if self.bits == self.value_bits else f"{self.bits}/{self.value_bits}"
        return f"affine{widths}:g{self.group_size}"


@dataclass(frozen=True, kw_only=True)
class KVRequest:
    """A parsed notation. `start`: the offset from which a layer is converted, in tokens.

    every: what all layers are asked for, where it is the same; `path`: the file of a mixed request.
    """

    kind: Literal["native", "uniform", "mixed", "turbo"]
    every: LayerRequest | None = None
    start: int = 0
    path: str | None = None
    on_write: bool = False
    skip: bool = False

    @property
    def bits(self) -> int | None:
        """Bits of keys, where all layers share them."""
        return None if self.every is None else self.every.bits

    @property
    def group_size(self) -> int:
        return 64 if self.every is None else self.every.group_size

    def __str__(self) -> str:
        if self.kind == "native":
            return "native"
        if self.every is None:
            head = f"mixed:{self.path}"
        elif self.kind == "turbo":
            head = self.every.name
        else:
            each = self.every
            widths = f"{each.bits}" if each.bits == each.value_bits else f"{each.bits}/{each.value_bits}"
            head = f"kv{widths}" + (f":g{each.group_size}" if each.group_size != 64 else "")
        tail = (f":start={self.start}" if self.start else "", ":on-write" * self.on_write, ":skip" * self.skip)
        return head + "".join(tail)

    def layers(self, caches: int) -> tuple[LayerRequest | None, ...]:
        """What each of `caches` caches is asked for; None: it stays native.

        Raises `CorruptFile` for a mixed plan that is no such list, `InvalidValue` for an entry that is not allowed.
        """
        if self.kind == "mixed":
            asked = read_kv_config(str(self.path), caches)
            return tuple(asked.get(i) for i in range(caches))
        return (self.every,) * caches


def parse_kv(text: str) -> KVRequest:
    """Parse a KV notation; anything unknown, and a scheme that is not registered any more in whatever spelling, is
    `InvalidValue` naming the field and what is allowed."""
    if not isinstance(text, str):
        raise InvalidValue("kv", text, "a notation such as native, kv8, kv4:g32 or mixed:PATH")
    request = _parsed(text)
    require_registered(request, text)
    return request


def require_registered(request: KVRequest, text: str) -> None:
    """Raise `InvalidValue` unless the table of levers has the storage that is asked for, and each option that is a
    variant of its own."""
    lever = LEVERS["kv"]
    plain = replace(request, start=0, on_write=False, skip=False)
    for part in (str(plain), *([ON_WRITE] if request.on_write else [])):
        if not any(variant.holds(part) for variant in lever.variants.values()):
            raise InvalidValue("kv", text, tuple(lever.variants))


def _parsed(text: str) -> KVRequest:
    if text in ("native", "bf16"):
        return KVRequest(kind="native")
    head, options = _split(text)
    fields: dict[str, Any] = {
        "start": int(options.pop("start", 0)),
        "on_write": options.pop("on-write", None) is not None,
        "skip": options.pop("skip", None) is not None,
    }
    if fields["start"] and fields["on_write"]:
        raise InvalidValue("kv", text, "either :start=N or :on-write, not both")
    group = options.pop("g", None)
    name, _, rest = head.partition(":")
    if name == "mixed" and rest and group is None:
        return KVRequest(kind="mixed", path=rest, **fields)
    turbo = _TURBO.fullmatch(rest) if name == "turbo" and group is None else None
    if turbo is not None:
        keys, values = int(turbo[1]), int(turbo[2])
        if keys in TURBO_KEY_BITS and values in TURBO_VALUE_BITS:
            each = LayerRequest(bits=keys, value_bits=values, group_size=32, turbo=True)
            return KVRequest(kind="turbo", every=each, **fields)
        raise InvalidValue("kv", text, f"turbo:k{{{_listed(TURBO_KEY_BITS)}}}v{{{_listed(TURBO_VALUE_BITS)}}}")
    uniform = _UNIFORM.fullmatch(head)
    if uniform is None:
        raise InvalidValue("kv", text, ALLOWED)
    bits, value_bits = int(uniform[1]), int(uniform[2] or uniform[1])
    if bits not in BITS or value_bits not in BITS:
        raise InvalidValue("kv", text, ALLOWED)
    every = LayerRequest(bits=bits, value_bits=value_bits, group_size=int(group or 64))
    return KVRequest(kind="uniform", every=every, **fields)


def _split(text: str) -> tuple[str, dict[str, str]]:
    """The notation without its options, and those."""
    options: dict[str, str] = {}
    head = text
    while (found := _OPTION.fullmatch(head)) is not None:
        head, option = found[1], found[2]
        name = "g" if option[0] == "g" else option.split("=")[0]
        if name in options:
            raise InvalidValue("kv", text, ALLOWED)
        options[name] = option.removeprefix(name).removeprefix("=")
    return head, options


def _listed(bits: tuple[int, ...]) -> str:
    return ",".join(map(str, bits))


def read_kv_config(path: str, caches: int) -> dict[int, LayerRequest]:
    """cache -> what is asked of it, by a kv_config.json as optiq writes it; caches not named stay native.

    An entry may have k_bits and v_bits in place of bits. Raises `CorruptFile` for a file that is not such a list,
    `InvalidValue` for bits or groups that do not exist, a layer that the model lacks (optiq ignores it) or one named
    twice.
    """
    try:
        entries = json.loads(Path(path).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise CorruptFile(path, f"not a readable kv_config.json: {error}") from error
    if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
        raise CorruptFile(path, "a kv_config.json is a list of {layer_idx, bits, group_size}")
    known = {"layer_idx", "bits", "k_bits", "v_bits", "group_size"}
    plan: dict[int, LayerRequest] = {}
    for entry in entries:
        if not {"layer_idx"} <= set(entry) <= known or ("bits" in entry) == ("k_bits" in entry and "v_bits" in entry):
            raise CorruptFile(path, f"{entry} is not {{layer_idx, bits (or k_bits and v_bits), group_size}}")
        layer = entry["layer_idx"]
        if isinstance(layer, bool) or not isinstance(layer, int) or layer in plan or not 0 <= layer < caches:
            raise InvalidValue("layer_idx", layer, f"each of 0..{caches - 1} at most once")
        bits = [entry.get("bits", entry.get(name)) for name in ("k_bits", "v_bits")]
        group = entry.get("group_size", 64)
        for name, value, allowed in (("bits", bits[0], BITS), ("bits", bits[1], BITS), ("group", group, GROUP_SIZES)):
            if isinstance(value, bool) or value not in allowed:
                raise InvalidValue(f"{path} layer {layer} {name}", value, allowed)
        plan[layer] = LayerRequest(bits=bits[0], value_bits=bits[1], group_size=group)
        if bits[0] != bits[1]:
            require_registered(KVRequest(kind="uniform", every=plan[layer]), f"{path} layer {layer}")
    return plan
