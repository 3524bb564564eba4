"""Whether a confirmation may begin: there is something to confirm, enough time has passed, and nothing else is new."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from datetime import datetime, timedelta

from engine import errors
from lab.config import LabConf, LookConf
from lab.design import Role
from lab.evidence import Events, confirmations, confirmations_begun, confirmed_by, stored_conf
from lab.fingerprint import Code, Fingerprint
from lab.record import arm_sha256
from lab.store import Store
from lab.tables import ArmRow, CodeRow, EnvRow, MachineRow, SessionRow
from lab.targets import latest
from oracles.contract import StackConfig


class NotConfirmable(errors.FrontierError):
    """A confirmation would not confirm anything now; the message says why, and what would help."""


@dataclass(frozen=True)
class Pending:
    """What waits for a confirmation. number: of the prompt, another one in each confirmation."""

    search: SessionRow
    conf: LabConf
    decision_id: int
    number: int


def pending(store: Store, name: str, machine_key: str) -> Pending:
    """The newest decision on this machine, if it asks for a confirmation. Raises `NotConfirmable`."""
    decisions = store.decisions(name)
    here = [d for d in decisions if d.machine_key == machine_key]
    if not here:
        known = ", ".join(sorted({d.machine_key for d in decisions})) or "no machine"
        raise NotConfirmable(
            f"{name} has no decision on machine key {machine_key} to confirm (decisions on: {known}); "
            f"frontier lab run {name}"
        )
    last = latest(here).get(machine_key, here[-1])
    if last.rule_row not in ("4", "5") or not last.verdict.startswith("confirm"):
        raise NotConfirmable(f"{name}: nothing to confirm, its newest decision is row {last.rule_row}: {last.verdict}")
    session = store.rows(SessionRow, id=last.session_id)[0]
    uid = confirmed_by(store, session)
    search = store.rows(SessionRow, uid=uid)[0] if uid else session
    conf, tries = stored_conf(store, search), confirmations_begun(store, name, search)
    if len(tries) >= conf.thresholds.max_sessions:
        raise NotConfirmable(
            f"{name}: its {len(tries)} confirmations were begun (thresholds.max_sessions), and one that was stopped "
            f"was a try as well; frontier lab decide {name} says what they come to"
        )
    earlier = [s for s in store.sessions(name) if s.purpose == "confirm"]
    return Pending(search, conf, last.id, len(earlier) + 1)


def confirming_conf(store: Store, conf: LabConf) -> LabConf:
    """The search session's configuration with the one look of a confirmation; its KL gate stands already, and an
    extension of the experiment holds."""
    t, row = conf.thresholds, store.experiment(conf.experiment.name)
    assert row is not None
    profile = replace(conf.profile, looks=[LookConf(t.confirm_quads, t.confirm_alpha)], kl=[], budget_s=None)
    return replace(conf, profile=profile, experiment=replace(conf.experiment, expires_on=row.expires_on))


def require_time_apart(store: Store, asked: Pending, print_: Fingerprint, at: datetime) -> None:
    """A machine in another state: another boot where its class allows that, or the minutes of the class since the last
    session of the experiment ended. Raises `NotConfirmable` with the moment from which it may begin."""
    machine, latest = (
        asked.conf.machine,
        [asked.search, *confirmations(store, asked.conf.experiment.name, asked.search)],
    )
    if machine.confirm_on_new_boot and all(session.boot != print_.boot for session in latest):
        return
    ended = max(datetime.fromisoformat(Events.of(store, session.id).when("measured")) for session in latest)
    opens = ended + timedelta(minutes=machine.confirm_after_minutes)
    if at < opens:
        other = ", or on another boot" if machine.confirm_on_new_boot else ""
        raise NotConfirmable(
            f"{asked.conf.experiment.name}: too early, the last session ended at {ended:%Y-%m-%d %H:%M} UTC; a "
            f"confirmation may begin at {opens:%Y-%m-%d %H:%M} UTC ({machine.confirm_after_minutes:g} minutes "
            f"later){other}"
        )


def require_same(
    store: Store,
    search: SessionRow,
    print_: Fingerprint,
    arms: Mapping[Role, StackConfig],
    model: str,
    model_sha256: str,
) -> None:
    """Raise `NotConfirmable` naming each difference between here and the search session."""
    found = differences(store, search, print_, arms, model, model_sha256)
    if found:
        raise NotConfirmable(
            f"session {search.uid} was measured with something else: {'; '.join(found)}; restore it, or search again "
            f"with frontier lab run"
        )


def differences(
    store: Store,
    session: SessionRow,
    print_: Fingerprint,
    arms: Mapping[Role, StackConfig],
    model: str,
    model_sha256: str,
) -> list[str]:
    """What a further session of this experiment would not share with `session`, in words."""
    key = store.rows(MachineRow, id=session.machine_id)[0].key
    env = store.rows(EnvRow, id=session.env_id)[0]
    found = [f"machine key: {key} and {print_.machine_key}"] if key != print_.machine_key else []
    packages = dict(print_.packages) | {"compiler": print_.compiler}
    found += _unlike("", {"python": env.python}, {"python": print_.python})
    found += _unlike("package ", env.packages, packages)
    found += _unlike("variable ", env.variables, print_.variables)
    if env.lock_sha256 != print_.lock_sha256:
        found.append(f"lock: {env.lock_sha256[:12] or 'none'} and {print_.lock_sha256[:12] or 'none'}")
    row = store.rows(CodeRow, id=session.code_id)[0]
    code = Code(row.git_sha, row.dirty, row.diff_sha256, row.arms_sha256)
    if code.arms_sha256 != print_.code.arms_sha256:
        found.append(f"source of the arms: {code} and {print_.code}")
    ids = Events.of(store, session.id).last("arms") or {}
    for role, config in arms.items():
        before = store.rows(ArmRow, id=ids[role])[0]
        if before.sha256 != arm_sha256(role, config, model, model_sha256):
            here = asdict(config) | {"model": model, "bytes": model_sha256[:12]}
            there = dict(before.config) | {"bytes": before.model_sha256[:12]}
            found += _unlike(f"{role} ", there, here) or [f"{role}: its plan per layer"]
    return found


def _unlike(label: str, before: Mapping[str, object], now: Mapping[str, object]) -> list[str]:
    """The entries of two documents that differ; lists and tuples are the same."""
    names = sorted(before.keys() | now.keys())
    pairs = [(name, _plain(before.get(name)), _plain(now.get(name))) for name in names if name != "kv_plan"]
    return [f"{label}{name}: {was!r} and {is_!r}" for name, was, is_ in pairs if was != is_]


def _plain(value: object) -> object:
    return [_plain(v) for v in value] if isinstance(value, list | tuple) else value
