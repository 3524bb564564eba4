"""What was declared against what was measured. Pure.

Only what was measured as declared is evidence. A run that was told otherwise on the command line is exploratory: its
samples stay, and nothing decides by them. The machine's class alone may be chosen there, since no declaration knows
where it is run; so may the profile, whose verdicts say what it is.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from lab.config import LabConf

EXPLORE = "explore"  # the purpose of such a session
CHOSEN = "machine"
# What a decision is about; dates, owner and words may change after it.
DECIDES = ("base", "candidate", "lever", "primary", "delta", "guardrails", "quality_class", "kind", "workload")


def choices(overrides: Sequence[str]) -> list[str]:
    """The overrides that leave a run as declared."""
    return [word for word in overrides if word.partition("=")[0] == CHOSEN]


def overridden(conf: LabConf, declared: LabConf) -> list[str]:
    """Each value of a run's configuration that is not the declared one, in words; none: it is the declared run."""
    return _unlike(asdict(conf), asdict(declared))


def _unlike(here: Mapping[str, Any], declared: Mapping[str, Any], where: str = "") -> list[str]:
    found = []
    for name, value in here.items():
        if name == "about":  # words, of a workload
            continue
        other = declared[name]
        if isinstance(value, Mapping) and isinstance(other, Mapping):
            found += _unlike(value, other, f"{where}{name}.")
        elif value != other:
            found.append(f"{where}{name} {value!r}, declared {other!r}")
    return found


def measured_otherwise(measured: LabConf, declared: LabConf) -> list[str]:
    """What a session measured that is not declared now, by an override or an edit since, in words: other arms, delta,
    primary, guardrails, class, sizes or model."""
    was, is_now = vars(measured.experiment), vars(declared.experiment)
    other = [f"{name} {was[name]!r}, declared {is_now[name]!r}" for name in DECIDES if was[name] != is_now[name]]
    if (was_load := measured.workload) != (load := declared.workload):
        other.append(
            f"workload {was_load.name!r}, declared {load.name!r}" if was_load.name != load.name else "workload"
        )
    if measured.model != declared.model:
        other.append(f"model {measured.model!r}, declared {declared.model!r}")
    return other
