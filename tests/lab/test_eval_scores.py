"""Scores, cluster means and their mean: an interval needs two items, and nothing is certain."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from pathlib import Path

import pytest

from evals.interval import standard_error, wilson
from evals.run import ItemResult, RunInfo
from lab import cli
from lab.eval_ledger import StoreLedger
from lab.eval_scores import cluster_rows, mean_of, summary
from lab.store import Store

INFO = RunInfo(
    task="t", version=1, items=6, group=8, chance=0.0, margin=2, template_sha256="", backend={"stack": "said"}
)


def results(scores: Sequence[float | None], clusters: Sequence[str] | None = None) -> list[ItemResult]:
    """None: not run."""
    return [
        ItemResult(
            item=f"i{i}", cluster=clusters[i] if clusters else "", prompt_sha256="p", prompt_ids=(i,), output="x",
            score=score or 0.0, extracted="", why="" if score is not None else "no sandbox", not_run=score is None,
            prompt_tokens=1, tokens=10, finish_reason="stop",
        )
        for i, score in enumerate(scores)
    ]  # fmt: skip


def test_fewer_than_two_items_have_no_interval() -> None:
    one = summary(INFO, results([1.0, None]))
    assert (one["judged"], one["score"], one["low"], one["high"]) == (1, 1.0, None, None)
    none = summary(INFO, results([None, None]))
    assert (none["judged"], none["score"], none["low"], none["not_run"]) == (0, None, None, ["no sandbox"])
    two = summary(INFO, results([1.0, 0.0]))
    assert (two["low"], two["high"]) == wilson(1, 2)


def test_clusters_have_means_and_those_a_mean_with_its_error() -> None:
    found = results([1, 1, 0, 1, None, 1], ["b", "b", "b", "a", "a", "a"])
    rows = cluster_rows(found)
    assert [(row["cluster"], row["judged"], row["score"]) for row in rows] == [("a", 2, 1.0), ("b", 3, 2 / 3)]
    mean = mean_of(rows)
    assert mean is not None
    own = [standard_error(row["low"], row["high"]) for row in rows]
    assert all(error > 0 for error in own)  # two right answers of two are no certainty
    assert (mean["n"], mean["score"]) == (2, pytest.approx(5 / 6))
    assert mean["error"] == pytest.approx(math.hypot(*own) / 2)
    assert cluster_rows(results([1, 0])) == []
    assert mean_of(rows[:1]) is None
    assert mean_of([rows[0], {"low": None, "high": None, "score": 1.0}]) is None


def test_the_larger_error_of_a_task_counts_in_the_mean() -> None:
    scores, together = [1.0] * 20 + [0.0] * 20, ["a"] * 10 + ["b"] * 10 + ["c"] * 10 + ["d"] * 10
    alone, clustered = summary(INFO, results(scores)), summary(INFO, results(scores, together))
    assert clustered["cluster_error"] > standard_error(alone["low"], alone["high"])
    means = [mean_of([row, row]) for row in (alone, clustered)]
    assert means[0] is not None
    assert means[1] is not None
    assert means[1]["error"] == pytest.approx(clustered["cluster_error"] / math.sqrt(2))
    assert means[1]["error"] > means[0]["error"]
    wide = standard_error(*wilson(500, 1000) or (0, 0))
    assert wide == pytest.approx(math.sqrt(0.25 / 1000), rel=0.01)


def test_the_command_shows_cluster_means(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    db = str(tmp_path / "lab.sqlite")
    with Store.open(db) as store:
        ledger = StoreLedger(store, label="base", model="m")
        ledger.put(INFO, 0, results([1, 1, 0, 1, None, 1], ["b", "b", "b", "a", "a", "c"]))
    assert cli.main(["eval", "show", "base", "--clusters", "--db", db, "--json"]) == 0
    captured = capsys.readouterr()
    rows = json.loads(captured.out)["tasks"]["t"]["clusters"]
    assert [(row["cluster"], row["judged"], row["low"] is None) for row in rows] == [
        ("a", 1, True),
        ("b", 3, False),
        ("c", 1, True),
    ]
    assert "t  a  1 items  100.0  (no interval)" in captured.err
    assert cli.main(["eval", "show", "base", "--clusters", "--item", "i1", "--db", db]) == 2
    assert "not with --clusters" in capsys.readouterr().err


def test_what_is_judged_later_holds_and_nothing_is_changed(tmp_path: Path) -> None:
    first, later = results([1, None, None, 0]), results([1, 1, None, 0])
    with Store.open(str(tmp_path / "lab.sqlite")) as store:
        ledger = StoreLedger(store, label="base", model="m")
        ledger.put(INFO, 0, first[:2])
        ledger.put(INFO, 1, first[2:])
        assert ledger.groups(INFO) == {0: first[:2], 1: first[2:]}
        ledger.again(INFO, later[1:2])
        assert ledger.groups(INFO) == {0: later[:2], 1: later[2:]}
