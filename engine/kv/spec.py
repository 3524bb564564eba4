"""What a graph asks of a layer's cache, before a KV scheme is chosen for it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, kw_only=True)
class CacheSpec:
    """One cache. kind: "dense" keeps every token, "rotating" the last `size` and the first `keep`, "chunked" those of a
    token's chunk, "state" a state of `slots` arrays that each call replaces.

    window: keys that a token may see; head_dims: of keys and of values; only_native: why it cannot be quantised.
    block: what is held after a number of tokens that it divides is the same wherever calls began at its multiples:
    1 where no token's bits depend on the calls, 256 for a scan in blocks of 256, None where they always do.
    grows: a state whose arrays have other shapes after more tokens.
    """

    kind: Literal["dense", "rotating", "chunked", "state"] = "dense"
    size: int | None = None
    window: int | None = None
    head_dims: tuple[int, ...] = ()
    slots: int = 0
    keep: int = 0
    only_native: str | None = None
    block: int | None = 1
    grows: bool = False

    @property
    def layout(self) -> str:
        """As reports name it: "full", "rotating:512", "chunked:8192", "state:2"."""
        if self.kind in ("dense", "state"):
            return "full" if self.kind == "dense" else f"state:{self.slots}"
        return f"{self.kind}:{self.size}"
