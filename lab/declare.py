"""A new experiment: what a declaration needs, its file, its row. Nothing is written that does not compose."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from typing import Any

import yaml

from engine import errors
from lab.arms import ARM_LEVERS, BESIDE, ArmConf, differing, kind_of, stating
from lab.config import LabConf, compose_all, names
from lab.lifecycle import write_declaration
from lab.record import declare
from lab.store import Store
from lab.tree import Tree

NEEDED = ("hypothesis", "primary", "delta", "expires")
MACHINE = "machine"


class Undeclared(errors.FrontierError):
    """A declaration without what it is judged by."""


@dataclass(frozen=True, kw_only=True)
class Declaration:
    """What the user said. delta: a number as text, or "machine" for what the machine's class can resolve; levers:
    NAME=VALUE words of each arm."""

    name: str
    hypothesis: str | None
    primary: str | None
    delta: str | None
    expires: str | None
    quality_class: str
    owner: str
    candidate: Sequence[str]
    base: Sequence[str] = ()
    guardrails: Sequence[str] = ()
    targets: Sequence[str] = ()
    model: str = ""
    workload: Mapping[str, int | str | None] = field(default_factory=dict)

    def missing(self) -> list[str]:
        """Flags without which nothing is declared."""
        return [f"--{name}" for name in NEEDED if not (self.__dict__[name] or "").strip()]


def arm_of(words: Sequence[str], flag: str) -> ArmConf:
    """An arm from NAME=VALUE words. Errors: `InvalidValue` for the form, `UnknownField` for a name."""
    values: dict[str, Any] = {}
    for word in words:
        name, equals, value = word.partition("=")
        if not equals or name in values:
            raise errors.InvalidValue(flag, word, "NAME=VALUE, each name once, for instance kv=kv8")
        if name not in (*ARM_LEVERS, *BESIDE):
            raise errors.UnknownField(flag, name, (*ARM_LEVERS, *BESIDE))
        read = {"chunk": whole, "temperature": number}.get(name)
        values[name] = read(f"{flag} {name}", value) if read else value
    return ArmConf(**values)


def whole(name: str, text: str) -> int:
    """A whole number. Raises `InvalidValue`."""
    if not text.isdecimal():
        raise errors.InvalidValue(name, text, "a whole number")
    return int(text)


def number(name: str, text: str) -> float:
    """A number. Raises `InvalidValue`."""
    try:
        return float(text)
    except ValueError as error:
        raise errors.InvalidValue(name, text, f"a number, or {MACHINE} for the machine's own") from error


def text_of(said: Declaration, today: date) -> str:
    """The file of a declaration. Raises `Undeclared` and what arms raise."""
    missing = said.missing()
    if missing:
        raise Undeclared(f"{said.name}: an experiment is declared before it is measured; say {', '.join(missing)}")
    base, candidate = arm_of(said.base, "--base"), arm_of(said.candidate, "--candidate")
    base, candidate = stating(base, candidate), stating(candidate, base)
    lever, default = differing(base, candidate), ArmConf()

    def stated(arm: ArmConf) -> dict[str, Any]:
        kept = ("stack", *lever)
        return {k: v for k, v in arm.__dict__.items() if k in kept or v != default.__dict__[k]}

    document: dict[str, Any] = {
        "name": said.name,
        "hypothesis": str(said.hypothesis).strip(),
        "kind": kind_of(base, candidate),
        "quality_class": said.quality_class,
        "lever": lever,
        "base": stated(base),
        "candidate": stated(candidate),
        "primary": said.primary,
        "delta": None if said.delta == MACHINE else number("--delta", str(said.delta)),
        "guardrails": list(said.guardrails),
        "owner": said.owner,
        "declared_on": str(today),
        "expires_on": said.expires,
        "targets": list(said.targets),
    }
    if said.model:
        document["model"] = said.model
    workload = {name: size for name, size in said.workload.items() if size is not None}
    if workload:
        document["workload"] = workload
    dumped: str = yaml.safe_dump(document, sort_keys=False, allow_unicode=True, width=110)
    return dumped


def add_new(said: Declaration, tree: Tree, today: date) -> LabConf:
    """Write the declaration. Raises `InvalidValue` for a name that is taken, and everything that `compose` does."""
    if not said.name.replace("_", "").replace("-", "").isalnum():
        raise errors.InvalidValue("name", said.name, "letters, digits, - and _")
    if yaml.safe_load(said.name) != said.name or said.name.replace(".", "").replace("e", "").isdigit():
        raise errors.InvalidValue("name", said.name, "a name that YAML reads as a word, not as a number or as true")
    if said.name in names(tree.experiments):
        raise errors.InvalidValue("name", said.name, f"a new one; there are {', '.join(names(tree.experiments))}")
    if said.name in {entry.name for entry in tree.entries()}:
        raise errors.InvalidValue("name", said.name, "a name of no experiment that ended (reports/log.md has this one)")
    return write_declaration(tree, said.name, text_of(said, today))


def enter_all(store: Store) -> dict[str, errors.FrontierError]:
    """Give every declared experiment that composes its row; returns what is wrong with those that have none then."""
    found, wrong = compose_all(only=[name for name in names() if store.experiment(name) is None])
    for conf in found.values():
        declare(store, conf)
    return wrong
