"""One side of an experiment: which levers it may set, and what they become in a worker. The levers themselves, their
values and defaults stand in `engine.levers`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from engine import LEVERS, SamplingParams, errors, parse_kv
from oracles.contract import STACKS, StackConfig

# A field of `ArmConf` -> the lever of `engine.levers` that it sets.
ARM_LEVERS = {
    "kv": "kv",
    "dtype": "dtype",
    "chunk": "prefill_chunk",
    "fuse": "fuse",
    "compile": "compile",
    "argmax": "argmax",
    "ops": "ops",
    "recurrence": "recurrence",
    "sampler": "sampler",
    "blas": "blas",
    "mlx_compile": "mlx_compile",
}
# Fields that may differ too, and are no lever of the table.
BESIDE = ("stack", "temperature")
# Of these a worker knows only if its stack is the engine.
AUTO = "auto"  # a lever of the engine that is not stated: what a user of that machine gets
OWN_LEVERS = ("fuse", "compile", "argmax", "ops", "recurrence")


@dataclass
class ArmConf:
    """One side of the pair, the model apart: a stack and its levers. `kv` is the engine's notation; blas "auto" is the
    one that the run was started with, and a lever of the engine that is "auto" has its default on the machine.
    temperature: that continuations are drawn at, 0 where none are."""

    stack: str = "engine"
    kv: str = str(LEVERS["kv"].default)
    dtype: str = str(LEVERS["dtype"].default)
    chunk: int = int(LEVERS["prefill_chunk"].default)
    fuse: str = AUTO
    compile: str = AUTO
    argmax: str = AUTO
    ops: str = AUTO
    recurrence: str = AUTO
    sampler: str = str(LEVERS["sampler"].default)
    temperature: float = 0.0
    blas: str = str(LEVERS["blas"].default)
    mlx_compile: str = str(LEVERS["mlx_compile"].default)

    def stack_config(self, model: str, blas: str) -> StackConfig:
        """The worker configuration of this arm. What is not stated is not passed on, so that the engine takes its
        default there, as for a user; the table of defaults is part of the source that two sessions must share."""
        own = tuple((name, str(self.__dict__[name])) for name in OWN_LEVERS if stated(name, self.__dict__[name]))
        return StackConfig(
            stack=self.stack,
            model=model,
            dtype=self.dtype,
            kv=self.kv,
            chunk=self.chunk,
            blas=blas if self.blas == "auto" else self.blas,
            compile=self.mlx_compile == "on",
            levers=own if self.stack == "engine" else (),
            sampling=(("sampler", self.sampler), ("temperature", self.temperature)) if self.temperature > 0 else (),
        )

    def as_levers(self) -> dict[str, str | int]:
        """Field -> value, a KV scheme in its shortest form."""
        return asdict(self) | {"kv": str(parse_kv(self.kv))}


def check_arm(where: str, arm: ArmConf) -> None:
    """Every value is of a registered variant, and of a stack that has the lever."""
    check_among(f"{where}.stack", arm.stack, STACKS)
    parse_kv(arm.kv)
    params = SamplingParams(sampler=arm.sampler, temperature=arm.temperature)
    if arm.sampler != LEVERS["sampler"].default:
        from engine import check_sampler  # which loads MLX

        check_sampler(params)
    for name, lever in ARM_LEVERS.items():
        value = arm.__dict__[name]
        if not stated(name, value):
            continue
        try:
            LEVERS[lever].variant(value)
        except errors.InvalidValue as error:
            raise errors.InvalidValue(f"{where}.{name}", value, error.allowed) from error
        if name in (*OWN_LEVERS, "sampler") and arm.stack != "engine" and value != LEVERS[lever].default:
            raise errors.InvalidValue(f"{where}.{name}", value, f"{LEVERS[lever].default}: {arm.stack} has no other")


def differing(base: ArmConf, candidate: ArmConf) -> list[str]:
    """The fields in which the arms differ."""
    left, right = base.as_levers(), candidate.as_levers()
    return sorted(key for key in left if left[key] != right[key])


def kind_of(base: ArmConf, candidate: ArmConf) -> str:
    """ "ours" where the candidate takes a variant that only this engine has, else "oracle-owned"."""
    named = [(ARM_LEVERS[name], candidate.__dict__[name]) for name in differing(base, candidate) if name in ARM_LEVERS]
    kinds = {variant.kind for lever, value in named for variant in LEVERS[lever].variants_of(value)}
    return "ours" if "ours" in kinds else "oracle-owned"


def stated(name: str, value: str | int) -> bool:
    """Whether an arm says which value a field has; a lever of the engine may be left to the machine."""
    return not (name in OWN_LEVERS and value == AUTO)


def stating(arm: ArmConf, other: ArmConf) -> ArmConf:
    """`arm` with the table's default for each lever of the engine that `other` states and it does not."""
    both = {n: other.__dict__[n] for n in OWN_LEVERS if stated(n, other.__dict__[n])}
    missing: dict[str, Any] = {n: str(LEVERS[n].default) for n in both if not stated(n, arm.__dict__[n])}
    return replace(arm, **missing)


def check_among(name: str, value: str, allowed: Sequence[str]) -> None:
    if value not in allowed:
        raise errors.InvalidValue(name, value, allowed)
