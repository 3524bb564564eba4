"""Engine configuration: frozen, closed, and resolved once.

`EngineConfig` holds what the user asked; `resolve()` returns a new one with every "auto" filled. The defaults and the
values of levers stand in `engine.levers`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

from engine.errors import InvalidValue, UnknownField
from engine.levers import LEVERS

BLAS = tuple(LEVERS["blas"].variants)
DRIVES = ("thread", "manual")
PROFILES = ("auto", "family", "universal")


@dataclass(frozen=True, kw_only=True)
class EngineConfig:
    """What `load` was asked for.

    dtype: "auto" keeps the checkpoint's own (mlx-lm's rule); a name casts every floating parameter.
    kv: see `engine.kv.request`: "native", "kv8", "kv4:g32", "kv8/4", "mixed:<kv_config.json>", "turbo:k8v3", with
    ":start=N", ":on-write" and ":skip".
    recurrence: "fast" has mlx-lm's bits; "plain" is the reference that it is compared with, where there are two.
    batch: rows that run at once; batch_mode: what a row's bits may depend on, see `engine.sched.modes`.
    kv_budget, memory_budget: bytes that all caches, and everything together, may take; requests wait for room in them,
    and without them are attempted whatever they take.
    prefix_cache: bytes of prefixes that are kept for prompts that begin alike, see `engine.store.prefix`; 0: none.
    They are part of memory_budget, and no part of kv_budget.
    queue: requests that may wait; room: unread events that a stream may hold; idle_s: how long it may hold them all.
    profile: how config.json is read, see `engine.artifacts.profile`; "universal" is for a model_type without a family.
    """

    model: str
    dtype: str = str(LEVERS["dtype"].default)
    kv: str = str(LEVERS["kv"].default)
    prefill_chunk: int = int(LEVERS["prefill_chunk"].default)
    recurrence: str = str(LEVERS["recurrence"].default)
    fuse: str = str(LEVERS["fuse"].default)
    compile: str = str(LEVERS["compile"].default)
    argmax: str = str(LEVERS["argmax"].default)
    ops: str = str(LEVERS["ops"].default)
    batch: int = int(LEVERS["batch"].default)
    batch_mode: str = str(LEVERS["batch_mode"].default)
    kv_budget: int | None = None
    memory_budget: int | None = None
    prefix_cache: int = 0
    queue: int = 1024
    room: int = 256
    idle_s: float = 600.0
    drive: str = "thread"
    profile: str = "auto"

    def __post_init__(self) -> None:
        for name in ("drive", "profile"):
            allowed = DRIVES if name == "drive" else PROFILES
            if getattr(self, name) not in allowed:
                raise InvalidValue(name, getattr(self, name), allowed)
        for name in ("prefill_chunk", "batch", "queue", "room"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise InvalidValue(name, value, "an integer >= 1")
        for name in ("kv_budget", "memory_budget"):
            value = getattr(self, name)
            if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < 1):
                raise InvalidValue(name, value, "None or a number of bytes >= 1")
        kept = self.prefix_cache
        if isinstance(kept, bool) or not isinstance(kept, int) or kept < 0:
            raise InvalidValue("prefix_cache", kept, "a number of bytes >= 0")
        if isinstance(self.idle_s, bool) or not isinstance(self.idle_s, (int, float)) or not self.idle_s > 0:
            raise InvalidValue("idle_s", self.idle_s, "a number > 0")
        if self.kv == "bf16":
            object.__setattr__(self, "kv", "native")
        for lever in LEVERS.values():
            if lever.where == "engine" and lever.name != "kv":  # whose notation says more than a list of variants
                lever.variant(getattr(self, lever.name))

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> EngineConfig:
        """Build from a mapping; an unknown key raises `UnknownField` and lists the known ones."""
        known = [f.name for f in fields(cls)]
        for key in values:
            if key not in known:
                raise UnknownField("EngineConfig", key, known)
        return cls(**values)

    def resolve(self, *, dtype: str) -> EngineConfig:
        """A new config in which nothing is "auto"; `dtype` is what the checkpoint stores."""
        return replace(self, dtype=dtype if self.dtype == "auto" else self.dtype)
