"""Typed errors of the public door. Each names the field, the value and what is allowed.

A front end prints `str(error)` as one line and exits with `error.exit_code`; nothing else is needed.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class FrontierError(Exception):
    """Base of every error that a user can cause or must act on."""

    exit_code = 2


class InvalidValue(FrontierError):
    """A known field holds a value that is not allowed."""

    def __init__(self, field: str, value: object, allowed: str | Iterable[object]) -> None:
        self.field, self.value = field, value
        self.allowed = allowed if isinstance(allowed, str) else ", ".join(map(str, allowed))
        super().__init__(f"{field}={value!r} is not allowed; allowed: {self.allowed}")


class UnknownField(FrontierError):
    """A field, key or name that nobody reads."""

    def __init__(self, where: str, name: str, known: Iterable[str]) -> None:
        self.where, self.name, self.known = where, name, tuple(sorted(known))
        super().__init__(f"{where}: unknown {name!r}; known: {', '.join(self.known) or '(none)'}")


class UnknownModelType(UnknownField):
    """config.json's model_type has no family file."""

    def __init__(self, model_type: str, known: Iterable[str]) -> None:
        super().__init__("config.json model_type", model_type, known)
        near = difflib.get_close_matches(model_type, self.known, n=3)
        hint = f"; near it: {', '.join(near)}" if near else ""
        self.args = (
            f"config.json model_type: unknown {model_type!r}{hint}; profile='universal' reads a llama-like model that "
            f"has no family file, which nothing has checked; known: {', '.join(self.known)}",
        )


class ProfileMismatch(FrontierError):
    """The weights are those of an exact profile, its config.json is not."""

    def __init__(self, folder: object, name: str, found: str, wanted: str) -> None:
        super().__init__(
            f"{folder}: the weights are {name}'s, but config.json is not (sha256 {found[:12]} instead of "
            f"{wanted[:12]}); restore it, or give profile='family' to read the folder as any other"
        )


class NotBuilt(FrontierError):
    """Asked for something that the project names but does not have yet. Refused, never ignored."""

    def __init__(self, what: str, instead: str = "") -> None:
        super().__init__(f"{what} is not built yet" + (f"; {instead}" if instead else ""))


class EmptyPrompt(FrontierError):
    """A prompt without a token. mlx-lm raises inside its generation thread here."""

    def __init__(self) -> None:
        super().__init__("prompt is empty: at least one token is needed (the tokenizer adds no BOS of its own)")


class TemplateMissing(FrontierError):
    """`messages` were given to a model whose tokenizer has no chat template."""

    def __init__(self, model: str) -> None:
        super().__init__(f"messages given, but {model} has no chat template; pass a string or token ids")


class ModelNotFound(FrontierError):
    """Neither a folder, nor a built-in name, nor a reachable hub id."""


class NetworkUnavailable(FrontierError):
    """Something must be fetched and cannot be."""


class CorruptFile(FrontierError):
    """A file is truncated, damaged or not what it claims to be."""

    def __init__(self, path: object, why: str) -> None:
        self.path = str(path)
        super().__init__(f"{path}: {why}")


class WeightsMismatch(FrontierError):
    """Checkpoint and architecture disagree: keys missing, keys left over or shapes that differ."""

    def __init__(
        self, path: object, missing: Iterable[str], left_over: Iterable[str], shapes: Iterable[str] = ()
    ) -> None:
        self.missing, self.left_over, self.shapes = sorted(missing), sorted(left_over), sorted(shapes)
        parts = [
            f"{label} {len(names)}: {', '.join(names[:6])}{' ...' if len(names) > 6 else ''}"
            for label, names in (("missing", self.missing), ("left over", self.left_over), ("wrong shape", self.shapes))
            if names
        ]
        super().__init__(f"{path}: weights do not fit the config; " + "; ".join(parts))


class UnsupportedConfig(FrontierError):
    """config.json asks for something that this architecture cannot honour."""


class WrongThread(FrontierError):
    """A manual-drive engine was used from a thread that did not load it."""


class EngineClosed(FrontierError):
    """The engine was closed; load it again."""

    def __init__(self) -> None:
        super().__init__("the engine is closed; call load() again")


class Cancelled(FrontierError):
    """The request was cancelled before it finished."""


class Overloaded(FrontierError):
    """Too many requests wait; try again later."""

    def __init__(self, waiting: int) -> None:
        super().__init__(f"overloaded: {waiting} requests wait already, which is the limit (`queue`); try again later")


class DeadlineExceeded(FrontierError):
    """The request was not done by its own deadline."""

    def __init__(self, limit_s: float | None) -> None:
        super().__init__(f"the request was not done within its deadline of {limit_s} s")


class ConsumerGone(FrontierError):
    """Nobody read the request's events for too long."""

    def __init__(self, idle_s: float) -> None:
        super().__init__(f"nobody read the request's events for {idle_s} s (`idle_s`), and as many as fit wait")


class Stalled(FrontierError):
    """A manual-drive engine has no turn to take, and the request that is waited for has not ended."""

    def __init__(self, id: int) -> None:
        super().__init__(
            f"request {id} waits behind streams that nobody reads, and no turn can be taken: read their events, wait "
            "for their results, or cancel them"
        )


class OutOfMemory(FrontierError):
    """The machine has no room for what a request needs; what it held is free again."""

    def __init__(self, text: str) -> None:
        super().__init__(f"out of memory: {text}; give kv_budget or memory_budget to have requests wait for room")


class BadPrefix(FrontierError):
    """A kept prefix that cannot be restored. It is let go, so that the same request computes it."""

    def __init__(self, tokens: int, why: str) -> None:
        super().__init__(f"a kept prefix of {tokens} tokens cannot be restored ({why}); it was let go: ask again")


class BadLogits(FrontierError):
    """A row's logits are not numbers, so no token can be chosen from them."""

    def __init__(self, index: int) -> None:
        super().__init__(
            f"the logits of token {index} are not numbers (NaN): the weights or the prompt broke the model"
        )


class MissingTool(FrontierError):
    """A program or library of the machine is not there; the message holds the command that installs it."""
