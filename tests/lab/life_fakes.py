"""A source tree of three files and a database of invented decisions, for tests of an experiment's end."""

from __future__ import annotations

import copy
import functools
import shutil
from pathlib import Path
from typing import Any

from lab.config import LabConf, compose, experiments_folder
from lab.record import declare
from lab.store import Store, now
from lab.tables import (
    ArmRow,
    Base,
    CodeRow,
    ComparisonRow,
    ConfigRow,
    DecisionRow,
    EnvRow,
    FidelityRow,
    MachineRow,
    SessionRow,
    WorkloadRow,
)
from lab.tree import Tree

ROOT = Path(__file__).resolve().parents[2]
CPU, MAC, CUDA = "linux-x86_64-cpu-bundled", "darwin-arm64-apple-m4-pro", "linux-x86_64-cuda-sm90"


def source_tree(root: Path, *names: str) -> Tree:
    """A tree with these experiments, the table of levers and a log."""
    for folder in ("experiments", "engine", "reports"):
        (root / folder).mkdir(parents=True)
    for name in names:
        shutil.copy(ROOT / "experiments" / f"{name}.yaml", root / "experiments")
    shutil.copy(ROOT / "engine" / "levers.json", root / "engine")
    (root / "reports" / "log.md").write_text("# Experiments that ended\n\nNone yet.\n", encoding="utf-8")
    return Tree(root)


def composed(name: str, overrides: tuple[str, ...] = (), folder: Path | None = None) -> LabConf:
    """What `compose` gives, made once for each text of the file."""
    where = experiments_folder(folder)
    return copy.deepcopy(_composed(name, overrides, where, (where / f"{name}.yaml").read_text(encoding="utf-8")))


@functools.cache
def _composed(name: str, overrides: tuple[str, ...], folder: Path, _text: str) -> LabConf:
    return compose(name, overrides, folder=folder)


def row_of(kind: type[Base], **values: Any) -> Base:
    """A row whose other columns hold nothing of meaning."""
    blank: dict[type, Any] = {str: "x", int: 1, float: 1.0, bool: False, object: {}}
    fields = {c.name: blank[c.type.python_type] for c in kind.__table__.columns if c.name != "id" and not c.nullable}
    return kind(**(fields | values))


def decide(
    store: Store,
    name: str,
    key: str,
    verdict: str,
    row: str = "7",
    folder: Path | None = None,
    overrides: tuple[str, ...] = (),
    facts: dict[str, object] | None = None,
) -> int:
    """A session on one machine with a comparison, a KL run and a decision; returns the decision's id. overrides: what
    the session measured otherwise than declared."""
    conf = composed(name, folder=folder)
    experiment = declare(store, conf)
    measured = composed(name, overrides, folder) if overrides else conf
    number = len(store.rows(SessionRow)) + 1
    unique = {"sha256": f"{name}-{number}"}
    ids = {
        "machine_id": store.add(row_of(MachineRow, key=key, **unique)),
        "env_id": store.add(row_of(EnvRow, **unique)),
        "code_id": store.add(row_of(CodeRow, **unique)),
        "config_id": store.add(row_of(ConfigRow, resolved_yaml=measured.as_yaml(), **unique)),
        "workload_id": store.add(row_of(WorkloadRow, **unique)),
    }
    uid = f"2026-{number}"
    session = store.add(row_of(SessionRow, uid=uid, experiment_id=experiment, profile="full", **ids))
    arm = store.add(row_of(ArmRow, experiment_id=experiment, **unique))
    numbers = {"estimate": -0.0213, "low": -0.04, "high": -0.002, "p_wilcoxon": 0.91, "quads": 32, "launches": 16}
    what = {"metric": "decode_tok_s", "use": "primary", "method": "timed", "document": {"state": "loss"}}
    store.add(row_of(ComparisonRow, session_id=session, **numbers, **what))
    kl = {"protocol": "step", "status": "PASS", "kl_mean": 0.00012, "counted": 2048, "total": 2048}
    arms = {"reference_arm_id": arm, "candidate_arm_id": arm}
    store.add(row_of(FidelityRow, session_id=session, **arms, **kl))
    said = {"machine_key": key, "verdict": verdict, "rule_row": row, "reasons": ["because"], "as_of": "2026-12-02"}
    said["facts"] = facts or {}
    return store.add(row_of(DecisionRow, experiment_id=experiment, session_id=session, at=now(), **said))
