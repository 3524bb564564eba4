"""What a graph asks of a layer's cache, before a KV scheme is chosen for it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, kw_only=True)
class CacheSpec:
    """One cache. kind: "dense" keeps every token, "rotating" the last `size`, "chunked" those of a token's chunk.

    window: keys that a token may see; head_dims: of keys and of values; only_native: why it cannot be quantised.
    """

    kind: Literal["dense", "rotating", "chunked"] = "dense"
    size: int | None = None
    window: int | None = None
    head_dims: tuple[int, int]
    only_native: str | None = None

    @property
    def layout(self) -> str:
        """As reports name it: "full", "rotating:512", "chunked:8192"."""
        return "full" if self.kind == "dense" else f"{self.kind}:{self.size}"
