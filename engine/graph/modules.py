"""The modules that a graph is made of, for levers that change how some of them run."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any


def modules(parts: Iterable[Any], kinds: tuple[type, ...]) -> Iterator[Any]:
    """Every module of these kinds among `parts` and below them, once."""
    seen: set[int] = set()
    stack = list(parts)
    while stack:
        module = stack.pop()
        if isinstance(module, (list, tuple)):
            stack += module
            continue
        if id(module) in seen or not type(module).__module__.startswith("engine.graph"):
            continue
        seen.add(id(module))
        if isinstance(module, kinds):
            yield module
        stack += vars(module).values()
