"""Every open and decided experiment of the database as a row of the page, with the sessions that it stands on."""

from __future__ import annotations

from collections.abc import Sequence

import yaml

from lab.commands.lab_view import state_of
from lab.config import compose_all
from lab.evidence import machine_key, standing
from lab.grounds import gather
from lab.scorecard.card import Experiment, LabSession
from lab.store import Store
from lab.tables import (
    BreadcrumbRow,
    CodeRow,
    ConfigRow,
    DecisionRow,
    EnvRow,
    ExperimentRow,
    SessionRow,
)
from lab.targets import latest


def read_experiments(store: Store, key: str) -> tuple[list[Experiment], list[LabSession]]:
    """(the experiments, open ones first; the sessions that their decisions on `key` stand on). Decisions on something
    else than what is declared now do not count; of an experiment whose file is gone all do."""
    crumbs = {row.experiment_name: row.text for row in store.rows(BreadcrumbRow)}
    declared, _unreadable = compose_all()
    found, sessions = [], []
    for row in store.rows(ExperimentRow):
        decisions = standing(store, declared[row.name]).counts if row.name in declared else store.decisions(row.name)
        here = [each for each in decisions if each.machine_key == key]
        found.append(_experiment(store, row, decisions, here, crumbs.get(row.name, "")))
        if here:
            sessions.append(_session(store, row, here[-1]))
    return sorted(found, key=lambda e: (not e.open, e.name)), sessions


def _experiment(
    store: Store, row: ExperimentRow, decisions: Sequence[DecisionRow], here: Sequence[DecisionRow], crumb: str
) -> Experiment:
    state = state_of(row.state, [each.verdict for each in latest(decisions).values()])
    last = here[-1] if here else None
    others = {each.machine_key: each.verdict for each in decisions if each not in here}
    return Experiment(
        name=row.name,
        state=state,
        quality_class=row.quality_class,
        primary=row.primary_metric,
        hypothesis=" ".join(row.hypothesis.split()),
        expires_on=row.expires_on,
        verdict=last.verdict if last else "",
        row=last.rule_row if last else "",
        reasons=tuple(map(str, last.reasons)) if last else (),
        as_of=last.as_of if last else "",
        session=store.rows(SessionRow, id=last.session_id)[0].uid if last else "",
        elsewhere=others,
        breadcrumb=crumb,
    )


def _session(store: Store, row: ExperimentRow, decision: DecisionRow) -> LabSession:
    session = store.rows(SessionRow, id=decision.session_id)[0]
    code, env = store.rows(CodeRow, id=session.code_id)[0], store.rows(EnvRow, id=session.env_id)[0]
    config = store.rows(ConfigRow, id=session.config_id)[0].resolved_yaml
    return LabSession(
        uid=session.uid,
        experiment=row.name,
        command=_command(row.name, session, config),
        facts={
            "Machine key": machine_key(store, session),
            "Started": session.started,
            "Profile": session.profile,
            "Purpose": session.purpose,
            "Commit": f"{code.git_sha[:12]}{' (dirty)' if code.dirty else ''}",
            "Source of the arms": code.arms_sha256[:16],
            "Environment": env.sha256[:16],
            "Configuration": f"sha256 {store.rows(ConfigRow, id=session.config_id)[0].sha256[:16]}",
            "Samples": str(len(store.samples(session.id))),
            "Decided": f"{decision.at}, decision {decision.id}",
        },
        evidence=tuple(each.words for each in gather(store, [decision])),
        config=config,
    )


def _command(name: str, session: SessionRow, config: str) -> str:
    """The line that runs the session once more; what else was overridden stands in its configuration."""
    if session.purpose == "confirm":
        return f"frontier lab confirm {name}"
    model = yaml.safe_load(config).get("model", "")
    return f"frontier lab run {name} --profile {session.profile} model={model}"
