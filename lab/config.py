"""Configuration of the lab: Hydra structured configs, one file an experiment, every key known.

`compose(name, overrides)` puts together lab/conf (profile, machine class, thresholds) and experiments/<name>.yaml.
The classes are not frozen, since OmegaConf cannot merge into a frozen one; nothing here changes them after `check`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field, fields, is_dataclass
from pathlib import Path
from typing import get_type_hints

import yaml
from hydra import compose as hydra_compose
from hydra import initialize_config_dir
from hydra.core.config_store import ConfigStore
from hydra.errors import HydraException
from omegaconf import OmegaConf
from omegaconf.errors import ConfigKeyError, OmegaConfBaseException

from engine import errors
from lab.arms import ArmConf
from lab.declarations import BadConfig, check_file, experiments_folder, names
from lab.rules import check
from lab.stats import Spend
from lab.workloads import LoadConf

CONF = Path(__file__).resolve().parent / "conf"
GROUPS = ("profile", "machine", "thresholds", "workload")


@dataclass
class WorkloadConf:
    """What an experiment needs other than its profile's sizes; None keeps the profile's. name: of `lab/conf/workload`,
    None is "own"; kl_length: tokens of each KL text; kl_sequences: at most so many of them."""

    name: str | None = None
    prompt_tokens: int | None = None
    max_tokens: int | None = None
    kl_length: int | None = None
    kl_sequences: int | None = None


@dataclass
class ExperimentConf:
    """One declared experiment. `delta` is a relative gain (base over candidate bytes, less 1); None = the machine's.

    `targets`: beginnings of machine keys; code is deleted only when all have said no. removes_lines: net lines of
    engine/ that go with the losing path. model: "" is the lab's own.
    """

    name: str = "???"
    hypothesis: str = "???"
    kind: str = "???"
    quality_class: str = "???"
    lever: list[str] = field(default_factory=list)
    model: str = ""
    workload: WorkloadConf = field(default_factory=WorkloadConf)
    base: ArmConf = field(default_factory=ArmConf)
    candidate: ArmConf = field(default_factory=ArmConf)
    primary: str = "???"
    delta: float | None = None
    guardrails: list[str] = field(default_factory=list)
    owner: str = "???"
    declared_on: str = "???"
    expires_on: str = "???"
    extension_reason: str = ""
    targets: list[str] = field(default_factory=list)
    removes_lines: int = 0


@dataclass
class LookConf:
    quads: int = 0
    alpha: float = 0.0


@dataclass
class KLConf:
    """One KL run of the fidelity gate: `evals.protocol` has the protocols. `tail`: single steps, for "step" only."""

    protocol: str = "forward"
    sequences: int = 0
    length: int = 0
    tail: int = 32


@dataclass
class ProfileConf:
    """How much is measured. `decides` False: every verdict past the gate is "undecided: quick profile".

    `budget_s`: cut the A/A and the KL text until the pilot's forecast fits; None never cuts. repeats: of an invalid
    quad. steady_window: samples in each of the two windows of the steady-state test, which ends after `steady_cap`
    samples; 0 makes none.
    """

    name: str = "???"
    decides: bool = True
    aa_quads: int = 0
    looks: list[LookConf] = field(default_factory=list)
    quads_per_launch: int = 2
    discard: int = 1
    prompt_tokens: int = 0
    max_tokens: int = 0
    kl: list[KLConf] = field(default_factory=list)
    cap_minutes: float = 0.0
    budget_s: float | None = None
    repeats: int = 0
    steady_window: int = 0
    steady_cap: int = 0

    @property
    def spends(self) -> tuple[Spend, ...]:
        return tuple(Spend(look.quads, look.alpha) for look in self.looks)


@dataclass
class MachineConf:
    """What a class of machines can resolve. Relative numbers; `steal_limit` is a share of time.

    thirds_decide False: a baseline that moves from its first to its last third is a note. A confirmation may begin
    `confirm_after_minutes` after the search session's end, or at once on another boot with `confirm_on_new_boot`.
    """

    name: str = "???"
    delta: float = 0.0
    guardrail_margin: float = 0.0
    sd_limit: float = 0.0
    sample_s: float = 0.0
    steady_limit: float = 0.0
    thirds_limit: float = 0.0
    thirds_decide: bool = True
    clock_limit: float = 0.0
    steal_limit: float = 0.0
    load_per_core: float = 0.0
    free_bytes: int = 0
    confirm_after_minutes: float = 0.0
    confirm_on_new_boot: bool = False


@dataclass
class ThresholdsConf:
    """The numbers of the decision table. entropy_match, excess_nats: see `lab.sampler_gate`. outlier_sd: in robust sd;
    aa_hours: how long an A/A serves other experiments; removed_lines: net lines of engine/ that make a change without a
    gain worth it."""

    aa_p: float = 0.0
    counted_runs: int = 0
    counted_spread: float = 0.0
    counted_margin: float = 0.0
    outlier_sd: float = 0.0
    outlier_share: float = 0.0
    confirm_quads: int = 0
    confirm_alpha: float = 0.0
    removed_lines: int = 0
    entropy_match: float = 0.0
    excess_nats: float = 0.0
    aa_hours: float = 0.0
    max_sessions: int = 0
    expiry_days: int = 0
    extension_days: int = 0


@dataclass
class LabConf:
    """Everything one run depends on, the code and the machine apart."""

    model: str = "???"
    profile: ProfileConf = field(default_factory=ProfileConf)
    machine: MachineConf = field(default_factory=MachineConf)
    thresholds: ThresholdsConf = field(default_factory=ThresholdsConf)
    workload: LoadConf = field(default_factory=LoadConf)
    experiment: ExperimentConf = field(default_factory=ExperimentConf)

    @property
    def delta(self) -> float:
        """The gain that matters on this machine."""
        return self.machine.delta if self.experiment.delta is None else self.experiment.delta

    @property
    def quads(self) -> int:
        return self.profile.looks[-1].quads

    def as_yaml(self) -> str:
        """The resolved configuration; the same text for equal ones."""
        return OmegaConf.to_yaml(OmegaConf.structured(self), sort_keys=True)

    @property
    def sha256(self) -> str:
        return hashlib.sha256(self.as_yaml().encode()).hexdigest()


def compose_all(
    folder: Path | None = None, only: Sequence[str] | None = None
) -> tuple[dict[str, LabConf], dict[str, errors.FrontierError]]:
    """(every declared experiment that composes, what is wrong with each other one), by name: one bad file is no reason
    to know nothing of the rest. only: of these alone."""
    found: dict[str, LabConf] = {}
    wrong: dict[str, errors.FrontierError] = {}
    for name in names(folder) if only is None else only:
        try:
            found[name] = compose(name, folder=folder)
        except errors.FrontierError as error:
            wrong[name] = error
    return found, wrong


def compose(name: str, overrides: Sequence[str] = (), *, folder: Path | None = None) -> LabConf:
    """Compose and check one experiment. `overrides`: `key=value` words, `profile=quick`, `experiment.delta=0.2`.

    Raises `UnknownField` for an unknown experiment, group choice or key (it lists the known), `BadConfig` for what does
    not parse or has the wrong type, `InvalidValue` for a value that is not allowed.
    """
    known = names(folder)
    if name not in known:
        raise errors.UnknownField("experiments", name, known)
    declared = check_file(experiments_folder(folder) / f"{name}.yaml")
    for override in overrides:
        _check_override(override)
    if declared:
        _check_override(f"workload={declared}")
    where = experiments_folder(folder).resolve()
    ConfigStore.instance().store(name="lab_schema", node=LabConf)
    try:
        with initialize_config_dir(config_dir=str(CONF), version_base="1.3"):
            composed = hydra_compose(
                "lab",
                overrides=[
                    f"hydra.searchpath=['file://{where.parent}']",
                    f"{where.name}@experiment={name}",
                    *([f"workload={declared}"] if declared else []),
                    *overrides,
                ],
            )
        conf = OmegaConf.to_object(composed)
    except ConfigKeyError as error:
        raise _unknown_key(where / f"{name}.yaml", error) from error
    except (HydraException, OmegaConfBaseException, yaml.YAMLError) as error:
        reason = error.__cause__ or error.__context__
        if isinstance(reason, ConfigKeyError):
            raise _unknown_key(where / f"{name}.yaml", reason) from error
        raise BadConfig(f"{name}: {_one_line(error)}") from error
    assert isinstance(conf, LabConf)
    take_own_sizes(conf, {override.partition("=")[0] for override in overrides})
    check(conf, name)
    return conf


def take_own_sizes(conf: LabConf, given: set[str]) -> None:
    """Put the sizes of the workload in place of the profile's, and the experiment's own model and sizes in place of
    either's, but not of an override's. An override of the workload takes all its sizes."""
    own, profile = conf.experiment.workload, conf.profile
    for size in ("prompt_tokens", "max_tokens"):
        named, told = conf.workload.__dict__[size], {"workload", f"workload.{size}"} & given
        if f"profile.{size}" in given:
            continue
        chosen = named if told and named is not None else own.__dict__[size]
        chosen = named if chosen is None else chosen
        profile.__dict__[size] = profile.__dict__[size] if chosen is None else chosen
    if conf.experiment.model and "model" not in given:
        conf.model = conf.experiment.model
    if "profile.kl" in given:
        return
    for run in profile.kl:
        run.length = run.length if own.kl_length is None else own.kl_length
        run.sequences = run.sequences if own.kl_sequences is None else min(run.sequences, own.kl_sequences)


def _one_line(error: Exception) -> str:
    cause = error.__cause__ or error.__context__ or error
    return " ".join(str(cause).split())


def _fields_of(path: Sequence[str]) -> tuple[type | None, list[str]]:
    """(schema class or None for a leaf, its field names) at a dotted path; raises `UnknownField` on the way."""
    here: type | None = LabConf
    for depth, part in enumerate(path):
        known = [] if here is None else [f.name for f in fields(here)]
        if part not in known:
            raise errors.UnknownField(".".join(path[:depth]) or "lab configuration", part, known)
        kind = get_type_hints(here)[part]
        here = kind if is_dataclass(kind) else None  # type: ignore[assignment]
    return here, [] if here is None else [f.name for f in fields(here)]


def _check_override(override: str) -> None:
    key, equals, value = override.partition("=")
    if not equals or not key.replace(".", "").replace("_", "").isalnum():
        raise errors.InvalidValue("override", override, "key=value, for instance profile=quick or experiment.delta=0.2")
    if key in GROUPS:
        choices = sorted(path.stem for path in (CONF / key).glob("*.yaml"))
        if value not in choices:
            raise errors.UnknownField(key, value, choices)
        return
    node, known = _fields_of(key.split("."))
    if node is not None:
        raise errors.InvalidValue("override", override, f"one of its keys: {', '.join(f'{key}.{k}' for k in known)}")


def _unknown_key(path: Path, error: ConfigKeyError) -> errors.FrontierError:
    kind = error.object_type
    known = [f.name for f in fields(kind)] if isinstance(kind, type) and is_dataclass(kind) else []
    return errors.UnknownField(str(path), str(error.full_key or error.key), known)
