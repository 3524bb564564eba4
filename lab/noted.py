"""A record that is kept while something runs, and notes how that ended."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from types import TracebackType
from typing import Any, Self


class Noted(ABC):
    """As a context it notes "finished", or "failed" with the error, which it lets pass."""

    @abstractmethod
    def event(self, name: str, detail: Mapping[str, Any]) -> None:
        """Note an event."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self.event("finished", {})
        else:
            self.event("failed", {"error": kind.__name__, "text": " ".join(str(error).split()) or kind.__name__})
