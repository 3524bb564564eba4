"""Engine configuration: frozen, closed, and resolved once.

`EngineConfig` holds what the user asked; `resolve()` returns a new one with every "auto" filled.
The table of defaults below is the one place where a lever's default lives.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

from engine.errors import InvalidValue, UnknownField

DTYPES = ("auto", "float32", "bfloat16", "float16")
BLAS = ("auto", "bundled", "openblas")
DRIVES = ("thread", "manual")
RECURRENCES = ("fast", "plain")
FUSIONS = ("none", "quantized")
COMPILES = ("none", "step")
ARGMAXES = ("full", "normalised")
BATCH_MODES = ("auto", "composition", "invariant", "fast")
PROFILES = ("auto", "family", "universal")

# name -> (default, what it does). A promoted experiment edits this table.
LEVERS: dict[str, tuple[object, str]] = {
    "kv": ("native", "KV cache scheme"),
    "prefill_chunk": (2048, "tokens per prefill forward; changes bits for quantised caches"),
    "batch": (8, "rows that run at once"),
    "batch_mode": ("auto", "what a row's bits may depend on, see engine.sched.modes"),
    "fuse": ("none", "projections of one input as one product: quantized (packed ones), or none"),
    "compile": ("none", "the decode step as a compiled trace over buffers of a fixed size: step, or none"),
    "argmax": ("full", "a greedy step's token: of log-probabilities written out (full), or in one pass (normalised)"),
    "recurrence": ("fast", "recurrent layers: as mlx-lm runs them, or a plain uncompiled step a token"),
}


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
    queue: requests that may wait; room: unread events that a stream may hold; idle_s: how long it may hold them all.
    profile: how config.json is read, see `engine.artifacts.profile`; "universal" is for a model_type without a family.
    """

    model: str
    dtype: str = "auto"
    kv: str = str(LEVERS["kv"][0])
    prefill_chunk: int = int(str(LEVERS["prefill_chunk"][0]))
    recurrence: str = str(LEVERS["recurrence"][0])
    fuse: str = str(LEVERS["fuse"][0])
    compile: str = str(LEVERS["compile"][0])
    argmax: str = str(LEVERS["argmax"][0])
    batch: int = int(str(LEVERS["batch"][0]))
    batch_mode: str = str(LEVERS["batch_mode"][0])
    kv_budget: int | None = None
    memory_budget: int | None = None
    queue: int = 1024
    room: int = 256
    idle_s: float = 600.0
    drive: str = "thread"
    profile: str = "auto"

    def __post_init__(self) -> None:
        if self.dtype not in DTYPES:
            raise InvalidValue("dtype", self.dtype, DTYPES)
        if self.recurrence not in RECURRENCES:
            raise InvalidValue("recurrence", self.recurrence, RECURRENCES)
        if self.fuse not in FUSIONS:
            raise InvalidValue("fuse", self.fuse, FUSIONS)
        if self.compile not in COMPILES:
            raise InvalidValue("compile", self.compile, COMPILES)
        if self.argmax not in ARGMAXES:
            raise InvalidValue("argmax", self.argmax, ARGMAXES)
        if self.drive not in DRIVES:
            raise InvalidValue("drive", self.drive, DRIVES)
        if self.profile not in PROFILES:
            raise InvalidValue("profile", self.profile, PROFILES)
        if self.batch_mode not in BATCH_MODES:
            raise InvalidValue("batch_mode", self.batch_mode, BATCH_MODES)
        for name in ("prefill_chunk", "batch", "queue", "room"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise InvalidValue(name, value, "an integer >= 1")
        for name in ("kv_budget", "memory_budget"):
            value = getattr(self, name)
            if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < 1):
                raise InvalidValue(name, value, "None or a number of bytes >= 1")
        if isinstance(self.idle_s, bool) or not isinstance(self.idle_s, (int, float)) or not self.idle_s > 0:
            raise InvalidValue("idle_s", self.idle_s, "a number > 0")
        if self.kv == "bf16":
            object.__setattr__(self, "kv", "native")

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
