"""One quick experiment on real processes and the real KL gate, with a tiny seeded model."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import engine
from lab import run
from lab.run import run_experiment
from lab.store import Store
from oracles.tiny import RECIPES, tiny_model


class Folded:
    """Bytes as tokens, folded into a tiny vocabulary."""

    def encode(self, text: str) -> list[int]:
        return [byte % RECIPES["llama"].vocab for byte in text.encode()]


def test_quick_experiment_on_real_workers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tiny_model("llama", root=tmp_path)
    monkeypatch.setattr(run, "load_tokenizer", lambda _folder: Folded())
    monkeypatch.setattr(engine, "load_tokenizer", lambda _folder: Folded(), raising=False)
    monkeypatch.setattr(run.time, "sleep", lambda _s: None)
    said: list[str] = []
    result = run_experiment(
        "kv4",
        profile="quick",
        overrides=[
            f"model='{folder}'",
            "experiment.candidate.kv=kv4:g32",
            "experiment.workload.max_tokens=17",
            "profile.kl=[{protocol: step, sequences: 6, length: 40, tail: 16}]",
        ],
        blas=engine.machine().blas,
        say=said.append,
        url=str(tmp_path / "lab.sqlite"),
        out=tmp_path / "outputs",
        lock=tmp_path / "timing.lock",
    )
    primary = next(c for c in result.comparisons if c.use == "primary")
    assert (primary.metric, primary.state) == ("kv_bytes", "win")
    # Random weights lose far more to four bits than class QT allows; a quick profile decides nothing by that, and a run
    # that was told so much otherwise than declared is no evidence at all.
    assert (result.fidelity[0].counted, result.fidelity[0].total, result.fidelity[0].status) == (96, 96, "FAIL")
    assert (result.row, result.verdict) == ("1", "exploratory: undecided: quick profile")
    assert "experiment.candidate.kv 'kv4:g32', declared 'kv4:g64:start=0'" in result.otherwise
    json.dumps(result.as_dict(), allow_nan=False)
    with Store.open(str(tmp_path / "lab.sqlite")) as store:
        session = store.sessions("kv4")[0]
        samples = store.samples(session.id)
        assert store.outcome(session.id) == "finished"
        assert (session.purpose, store.decisions("kv4")) == ("explore", [])
        assert len({s.pid for s in samples}) == 5
        assert {s.lever for s in samples if s.part == "ab" and s.role == "candidate"} == {"affine4:g32"}
        assert all(s.decode_tokens == 16 for s in samples)
