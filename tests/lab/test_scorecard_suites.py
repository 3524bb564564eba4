"""Rows of parity suites and of experiments, from the database alone."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from scorecard_fakes import KEY, add_decision, cell_result, fingerprint

from engine import errors
from lab.scorecard.experiments import read_experiments
from lab.scorecard.scores import read_scores
from lab.scorecard.sheets import experiments_table, parity_table, scores_table
from lab.scorecard.suites import SUITES, read_suites, record_architectures, record_suite, with_blas
from lab.store import Store, now
from lab.tables import BreadcrumbRow, EvalItemRow, EvalRunRow, ExperimentRow

COMMAND = "frontier parity --suite kv"


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store.open(str(tmp_path / "lab.sqlite"))


def test_every_suite_has_a_row_and_one_that_was_not_run_says_what_runs_it(store: Store) -> None:
    found = read_suites(store, KEY)
    assert [suite.name for suite in found] == list(SUITES)
    assert all(suite.equal is None and suite.ok is None and suite.command for suite in found)
    row = parity_table(found).rows[0]
    assert row[4].text == "not run on this kind of machine"


def test_the_newest_run_of_a_suite_is_counted_and_no_older_one(store: Store) -> None:
    """Planted breaks: cells of two runs added up; "Lab" and "not run" counted as equal; a faulty cell unnamed."""
    record_suite(store, fingerprint(), "kv", COMMAND, "bundled", [cell_result("equal")] * 5)
    cells = [cell_result("equal"), cell_result("Lab"), cell_result("not run"), cell_result("differs", "at 3")]
    run = record_suite(store, fingerprint(commit="f" * 40), "kv", COMMAND, "bundled", cells)
    suite = read_suites(store, KEY)[1]
    assert (suite.equal, suite.not_run, suite.faulty, suite.ok) == (1, 2, 1, False)
    assert (suite.run, suite.command, suite.code) == (run, COMMAND, "ffffffffffff")
    assert suite.machine_key == "linux-x86_64-cpu-bundled"
    assert suite.faults == ("llama float32 native forced, 2+1, mlx-lm: differs at 3",)
    faulty = parity_table([suite]).rows[0][3]
    assert faulty.alarm
    assert faulty.link == "parity-kv"


def test_a_quick_run_hides_a_whole_one_only_with_a_fault(store: Store) -> None:
    record_suite(store, fingerprint(), "kv", COMMAND, "bundled", [cell_result("equal")] * 5)
    record_suite(store, fingerprint(), "kv", COMMAND, "bundled", [cell_result("equal")], quick=True)
    assert read_suites(store, KEY)[1].equal == 5
    record_suite(store, fingerprint(), "kv", COMMAND, "bundled", [cell_result("failed")], quick=True)
    assert read_suites(store, KEY)[1].faulty == 1
    record_suite(store, fingerprint(), "tiny", COMMAND, "bundled", [cell_result("equal")], quick=True)
    assert read_suites(store, KEY)[0].equal == 1


def test_suites_of_another_kind_of_machine_are_not_shown(store: Store) -> None:
    record_suite(store, fingerprint("darwin-arm64-apple-m4"), "kv", COMMAND, "bundled", [cell_result("equal")])
    assert read_suites(store, KEY)[1].equal is None
    assert read_suites(store, "darwin-arm64-apple-m4")[1].equal == 1


def test_an_unknown_suite_and_an_unknown_blas_are_refused(store: Store) -> None:
    with pytest.raises(errors.UnknownField, match="tiny"):
        record_suite(store, fingerprint(), "big", COMMAND, "bundled", [])
    with pytest.raises(errors.InvalidValue, match="blas"):
        with_blas(with_blas(fingerprint(), "bundled"), "openblas")


def test_recorded_architectures_are_taken_in_once_and_shown(store: Store, tmp_path: Path) -> None:
    modules = {"llama": {"equal": 5, "not_run": 1, "faulty": 0}, "x": {"equal": 2, "not_run": 0, "faulty": 3}}
    path = tmp_path / "architectures.json"
    held = {"modules": modules, "machine": "linux-x86_64-cpu-bundled", "commit": "9" * 40, "versions": {"mlx": "1"}}
    path.write_text(json.dumps(held))
    record_architectures(store, path)
    record_architectures(store, path)
    suite = read_suites(store, KEY)[-1]
    assert (suite.equal, suite.not_run, suite.faulty, suite.code) == (7, 1, 3, "9" * 12)
    assert suite.faults == ("x",)
    path.write_text(json.dumps(held | {"modules": {"llama": modules["llama"]}}))
    record_architectures(store, path)
    assert read_suites(store, KEY)[-1].faulty == 0
    record_architectures(store, tmp_path / "none.json")


def test_scores_of_the_pages_models_with_intervals_floor_and_what_was_not_run(store: Store) -> None:
    """Planted breaks: an older run of a task, another model's score, a share printed as percent twice."""
    fields = {"version": 1, "group_size": 4, "margin": 0.02, "template_sha256": "t", "packages": {}, "started": now()}
    code = {"git_sha": "5" * 40, "dirty": False}
    runs = (("old", "m", 0.0), ("new", "m", 0.0), ("chance", "m", 0.25), ("other", "x", 0.0))
    for sha, model, chance in runs:
        task = "arc_easy" if sha == "chance" else "lambada"
        row = EvalRunRow(
            sha256=sha, task=task, items=5, chance=chance, backend={"stack": "engine"}, label=f"{model} native",
            model=model, code=code, **fields,
        )  # fmt: skip
        run = store.add(row)
        texts = dict.fromkeys(("cluster", "prompt_sha256", "output", "output_sha256", "extracted", "finish_reason"), "")
        counts = {"prompt_ids": [], "prompt_tokens": 1, "tokens": 1, "group_index": 0}
        for i in range(5):
            last = i == 4
            score = 0.0 if last or sha == "old" else float(i < 3)
            why = "no sandbox" if last else ""
            store.add(EvalItemRow(eval_run_id=run, item=str(i), score=score, why=why, not_run=last, **texts, **counts))
    scores = read_scores(store, {"m"})
    assert [(s.task, s.run, s.judged, s.score) for s in scores] == [
        ("arc_easy", "chance", 4, 0.75),
        ("lambada", "new", 4, 0.75),
    ]
    at_floor, whole = scores_table(scores).rows
    assert whole[3].text == "75.0"
    assert whole[3].low is not None
    assert whole[3].low < 75 < (whole[3].high or 0)
    assert whole[3].reasons == ("incomplete: 4 of 5 items judged",)
    assert at_floor[3].link == "eval-chance"
    assert scores[0].facts["Commit"] == "5" * 12


def test_a_decision_on_something_else_than_is_declared_now_does_not_count(store: Store) -> None:
    add_decision(store, "kv8", "undecided: quick profile")  # its session's configuration is not the file's
    (kv8,), sessions = read_experiments(store, KEY)
    assert (kv8.verdict, kv8.session, sessions) == ("", "", [])


def test_open_and_decided_experiments_with_verdict_row_and_evidence(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Planted breaks: another machine's verdict shown as this one's; an evidence link that leads to no session."""
    monkeypatch.setattr("lab.scorecard.experiments.compose_all", lambda: ({}, {}))
    uid = add_decision(store, "kv8", "undecided: quick profile")
    add_decision(store, "kv8", "default on linux-x86_64-cuda-sm90", key="linux-x86_64-cuda-sm90", row="3")
    gone = add_decision(store, "kv4", "delete: gate", state="deleted", row="1")
    store.add(BreadcrumbRow(experiment_name="kv4", at=now(), text="deleted 2026-11-29\nKL 0.2 nats"))
    fields = dict.fromkeys(("hypothesis", "kind", "quality_class", "owner", "declared_on", "expires_on"), "x")
    store.declare(ExperimentRow(name="fuse", primary_metric="decode_tok_s", state="declared", **fields))
    experiments, sessions = read_experiments(store, KEY)
    assert [(e.name, e.open) for e in experiments] == [("fuse", True), ("kv8", True), ("kv4", False)]
    fresh, kv8, kv4 = experiments
    assert (kv8.verdict, kv8.row, kv8.session) == ("undecided: quick profile", "8", uid)
    assert kv8.elsewhere == {"linux-x86_64-cuda-sm90": "default on linux-x86_64-cuda-sm90"}
    assert (kv4.verdict, kv4.row, kv4.session) == ("delete: gate", "1", gone)
    assert "KL 0.2 nats" in kv4.breadcrumb
    assert {session.uid for session in sessions} == {uid, gone}
    first = next(session for session in sessions if session.uid == uid)
    assert first.command == "frontier lab run kv8 --profile quick model=m-fp32"
    assert first.evidence[0].startswith(f"{KEY}: row 8, undecided: quick profile")
    table = {row[0].value: row for row in experiments_table(experiments).rows}
    assert table["fuse"][4].text == "no decision on this machine"
    assert table["kv8"][8].link == f"session-{uid}"
    assert table["kv8"][4].grey
    assert not table["kv4"][4].grey
    assert fresh.reasons == ()
