"""Writes a run of the scorecard into the database as it happens: identity first, each sample when it is taken."""

from __future__ import annotations

import math
import secrets
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import Any

from omegaconf import OmegaConf

from engine import errors
from lab.config import CONF, MachineConf
from lab.fingerprint import Fingerprint
from lab.noted import Noted
from lab.quality import Quality
from lab.recipes import RecipeSpec, Sample
from lab.record import add_code, add_env, add_machine
from lab.scorecard_tables import ScorecardEventRow, ScorecardQualityRow, ScorecardRunRow, ScorecardSampleRow
from lab.store import Store, now

CLASSES = ("shared", "quiet")


def machine_class(name: str) -> MachineConf:
    """The limits of a machine class, from lab/conf/machine. Raises `InvalidValue`."""
    if name not in CLASSES:
        raise errors.InvalidValue("--class", name, CLASSES)
    merged = OmegaConf.merge(OmegaConf.structured(MachineConf), OmegaConf.load(CONF / "machine" / f"{name}.yaml"))
    found = OmegaConf.to_object(merged)
    assert isinstance(found, MachineConf)
    return found


@dataclass(frozen=True, kw_only=True)
class NewRun:
    """What a run is, before anything is measured. command: the line that makes it again; specs: what is to run."""

    print: Fingerprint
    model: str
    timing_model: str
    model_sha256: str
    profile: str
    limits: MachineConf
    command: str
    specs: tuple[RecipeSpec, ...]


class RunRecord(Noted):
    """One run's rows. As a context it notes how the run ended, and lets an error pass."""

    def __init__(self, store: Store, run_id: int, uid: str, new: NewRun) -> None:
        self.store, self.run_id, self.uid, self.limits = store, run_id, uid, new.limits
        self._specs = {spec.name: spec for spec in new.specs}

    @classmethod
    def begin(cls, store: Store, new: NewRun) -> RunRecord:
        """Insert the rows of a new run."""
        uid = f"{datetime.now(UTC):%Y%m%dT%H%M%S}-{secrets.token_hex(4)}"
        row = ScorecardRunRow(
            uid=uid,
            machine_id=add_machine(store, new.print),
            env_id=add_env(store, new.print),
            code_id=add_code(store, new.print),
            model=new.model,
            timing_model=new.timing_model,
            model_sha256=new.model_sha256,
            profile=new.profile,
            class_limits=asdict(new.limits),
            command=new.command,
            boot=new.print.boot,
            started=now(),
        )
        store.reserve()
        record = cls(store, store.add(row), uid, new)
        record.event("recipes", {"specs": [asdict(spec) for spec in new.specs]})
        return record

    def event(self, name: str, detail: Mapping[str, Any]) -> None:
        self.store.add(ScorecardEventRow(run_id=self.run_id, at=now(), event=name, detail=dict(detail)))

    def sample(self, sample: Sample) -> None:
        """Store one sample. What is not in the list of recipes (the A/A) is its own stack."""
        spec = self._specs.get(sample.recipe)
        stack, kv = (spec.stack, spec.kv) if spec else ("A/A", "")
        self.store.add(ScorecardSampleRow(run_id=self.run_id, stack=stack, kv=kv, **asdict(sample)))

    def quality(self, found: Mapping[str, Quality], corpus_sha256: str) -> None:
        """The KL and perplexity of every recipe, all of them or none."""
        rows = [
            ScorecardQualityRow(
                run_id=self.run_id,
                corpus_sha256=corpus_sha256,
                **asdict(each) | {"kl_units": list(each.kl_units), "nll_units": list(each.nll_units)},
            )
            for each in found.values()
        ]
        for row in rows:
            if not all(map(math.isfinite, (*row.kl_units, *row.nll_units))):
                raise errors.InvalidValue(f"quality of {row.recipe}", row.kl_units, "finite numbers")
        self.store.add_all(rows)
