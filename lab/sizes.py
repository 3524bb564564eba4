"""Sizes as users write them."""

from __future__ import annotations

import re

from engine import errors

_SIZE = re.compile(r"(\d+(?:\.\d+)?) ?([kKMGT]i?B|B)?")
_UNITS = {"": 1, "B": 1} | {
    f"{letter}{suffix}": base**power
    for power, letters in enumerate(("kK", "M", "G", "T"), start=1)
    for letter in letters
    for suffix, base in (("B", 1000), ("iB", 1024))
}


def parse_size(flag: str, text: str) -> int:
    """Bytes of "8GiB", "512 MB" or "8000000000"; `InvalidValue` for anything else and for nothing."""
    found = _SIZE.fullmatch(text)
    count = int(float(found[1]) * _UNITS[found[2] or ""]) if found else 0
    if count < 1:
        raise errors.InvalidValue(flag, text, "bytes >= 1, or a number with kB, MB, GB, TB, KiB, MiB, GiB or TiB")
    return count
