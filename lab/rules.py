"""What a configuration may hold beyond its types: the rules that hold before anything is measured."""

from __future__ import annotations

import math
from datetime import date, timedelta
from typing import TYPE_CHECKING

from engine import errors
from lab.arms import ARM_LEVERS, AUTO, BESIDE, OWN_LEVERS, check_among, check_arm, differing
from lab.metrics import COUNTED, DRAWN, TIMED, TOGETHER
from lab.workloads import LEAST_TOKENS, check_workload
from lab.workloads import TOGETHER as ROWS_AT_ONCE

if TYPE_CHECKING:
    from lab.config import ExperimentConf, LabConf, ProfileConf

KINDS = ("oracle-owned", "ours")
QUALITY_CLASSES = ("L", "Q8", "QT")
PROTOCOLS = ("forward", "step")


def _date(name: str, text: str) -> date:
    try:
        return date.fromisoformat(text)
    except ValueError as error:
        raise errors.InvalidValue(name, text, "a date like 2026-11-29") from error


def check(conf: LabConf, name: str) -> None:
    """Every rule that the types cannot hold; the first broken one raises."""
    e, p = conf.experiment, conf.profile
    if e.name != name:
        raise errors.InvalidValue("experiment.name", e.name, f"{name}, the name of its file")
    check_among("experiment.kind", e.kind, KINDS)
    check_among("experiment.quality_class", e.quality_class, QUALITY_CLASSES)
    check_among("experiment.primary", e.primary, (*TIMED, *TOGETHER, *COUNTED, *DRAWN))
    for run in p.kl:
        check_among("profile.kl.protocol", run.protocol, PROTOCOLS)
    for metric in e.guardrails:
        check_among("experiment.guardrails", metric, (*TIMED, *TOGETHER, *COUNTED, *DRAWN))
        if metric == e.primary or e.guardrails.count(metric) > 1:
            raise errors.InvalidValue("experiment.guardrails", metric, "metrics other than the primary, each once")
    for role, arm in (("base", e.base), ("candidate", e.candidate)):
        check_arm(f"experiment.{role}", arm)
    check_lever(e)
    check_engages(conf)
    check_metrics(conf)
    check_workload(conf.workload, p.prompt_tokens)
    if e.delta is not None and not 0 < e.delta < math.inf:
        raise errors.InvalidValue("experiment.delta", e.delta, "a number above 0, or null for the machine's")
    if not e.targets or not all(e.targets):
        raise errors.InvalidValue("experiment.targets", e.targets, "at least one beginning of a machine key")
    check_dates(conf)
    check_sizes(p)


def check_lever(experiment: ExperimentConf) -> None:
    """The arms differ in the declared lever, in all of it, and in nothing else."""
    for lever in experiment.lever:
        check_among("experiment.lever", lever, (*ARM_LEVERS, *BESIDE))
    differs = differing(experiment.base, experiment.candidate)
    if differs != sorted(experiment.lever):
        what = ", ".join(differs) or "nothing"
        raise errors.InvalidValue("experiment.lever", experiment.lever, f"what the arms differ in: {what}")
    for name in (each for each in differs if each in OWN_LEVERS):
        if AUTO in (experiment.base.__dict__[name], experiment.candidate.__dict__[name]):
            allowed = "stated in both arms: what auto is depends on the machine"
            raise errors.InvalidValue(f"experiment.{name}", AUTO, allowed)
    if not differs:
        raise errors.InvalidValue("experiment.lever", experiment.lever, "at least one lever; equal arms are an A/A")


def check_metrics(conf: LabConf) -> None:
    """A metric is of a workload that has it, and drawn continuations are of arms that draw them."""
    e, kind = conf.experiment, conf.workload.kind
    for name, metrics, having in (
        ("experiment.primary", [e.primary], e.primary),
        ("experiment.guardrails", e.guardrails, ", ".join(e.guardrails)),
    ):
        if any(m in TOGETHER for m in metrics) and kind not in ROWS_AT_ONCE:
            raise errors.InvalidValue(name, having, f"agg_tok_s with a workload of {', '.join(ROWS_AT_ONCE)} only")
        if any(m in DRAWN for m in metrics) and kind != "drawn":
            raise errors.InvalidValue(name, having, f"{', '.join(DRAWN)} with a workload of kind drawn only")
    drawn, sampled = kind == "drawn", set(e.lever) & {"sampler", "temperature"}
    for role, arm in (("base", e.base), ("candidate", e.candidate)):
        if drawn != (arm.temperature > 0):
            allowed = "a number above 0: continuations are drawn" if drawn else "0: this workload is greedy"
            raise errors.InvalidValue(f"experiment.{role}.temperature", arm.temperature, allowed)
    if sampled and (e.primary not in DRAWN or set(e.lever) - sampled):
        what = f"{', '.join(DRAWN)}: a sampler is judged by its own quality, alone"
        raise errors.InvalidValue("experiment.primary", e.primary, what)


def engaged_tokens(experiment: ExperimentConf) -> int:
    """Tokens of a prefill from which on a chunk lever does anything; 1 for every other lever."""
    if "chunk" not in experiment.lever:
        return 1
    # The first or the last token goes alone, so that a text of one chunk and a token has a single one.
    return min(experiment.base.chunk, experiment.candidate.chunk) + 2


def check_engages(conf: LabConf) -> None:
    """A chunk that no prompt reaches would be compared with itself, in the samples and in the KL text."""
    least = engaged_tokens(conf.experiment)
    sizes = {
        "profile.prompt_tokens": [conf.profile.prompt_tokens],
        "profile.kl": [run.length - (run.tail if run.protocol == "step" else 0) for run in conf.profile.kl],
    }
    for name, lengths in sizes.items():
        if lengths and min(lengths) < least:
            raise errors.InvalidValue(name, min(lengths), f"lengths of {least} and more, else no chunk is ever full")


def check_dates(conf: LabConf) -> None:
    """Expiry is `expiry_days` after the declaration, or `extension_days` later with a written reason."""
    e, t = conf.experiment, conf.thresholds
    days = t.expiry_days + (t.extension_days if e.extension_reason else 0)
    expires = _date("experiment.declared_on", e.declared_on) + timedelta(days=days)
    if _date("experiment.expires_on", e.expires_on) != expires:
        raise errors.InvalidValue("experiment.expires_on", e.expires_on, f"{expires}, {days} days after declared_on")


def check_sizes(profile: ProfileConf) -> None:
    """Sizes that measure something, looks in order and made of full launches."""
    for name, least in (("aa_quads", 1), ("quads_per_launch", 1), ("discard", 1), ("prompt_tokens", 2)):
        if profile.__dict__[name] < least:
            raise errors.InvalidValue(f"profile.{name}", profile.__dict__[name], f"an integer >= {least}")
    if profile.max_tokens < LEAST_TOKENS:
        raise errors.InvalidValue("profile.max_tokens", profile.max_tokens, f"an integer >= {LEAST_TOKENS}")
    if not profile.kl or any(run.sequences < 2 or run.length < 2 for run in profile.kl):
        raise errors.InvalidValue("profile.kl", profile.kl, "at least one run of two or more sequences and tokens")
    quads = [look.quads for look in profile.looks]
    if not quads or quads != sorted(set(quads)) or any(not 0 < look.alpha < 0.5 for look in profile.looks):
        raise errors.InvalidValue("profile.looks", quads, "growing numbers of quads, each with an alpha in (0, 0.5)")
    if any(n % profile.quads_per_launch for n in (*quads, profile.aa_quads)):
        raise errors.InvalidValue("profile.quads_per_launch", profile.quads_per_launch, f"a divisor of {quads}")
    if profile.cap_minutes <= 0:
        raise errors.InvalidValue("profile.cap_minutes", profile.cap_minutes, "a number above 0")
