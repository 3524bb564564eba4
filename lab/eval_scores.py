"""What the results of a run add up to: scores with intervals, means of clusters, the mean over several with its error.

Pure: results in, documents out. Fewer than two judged items have a score and no interval, and are in no mean.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

from evals.compare import at_floor
from evals.interval import clustered, standard_error, wilson
from evals.run import ItemResult, RunInfo


def summary(info: RunInfo, results: Sequence[ItemResult]) -> dict[str, Any]:
    """One task's line: its score with a Wilson interval, and a cluster-robust error where items cluster."""
    judged = [result for result in results if not result.not_run]
    n = len(judged)
    found = None
    if n and any(result.cluster for result in judged):
        found = clustered([result.score for result in judged], [result.cluster for result in judged])
    scored = _scored(judged)
    return {
        "task": info.task,
        "version": info.version,
        "run": info.id,
        "items": info.items,
        **scored,
        "cluster_error": found[0] if found else None,
        "chance": info.chance,
        "at_floor": at_floor(scored["score"], n, info.chance, info.margin) if n else None,
        "mean_tokens": math.fsum(result.tokens for result in judged) / n if n else None,
        "not_run": sorted({result.why for result in results if result.not_run}),
    }


def cluster_rows(results: Sequence[ItemResult]) -> list[dict[str, Any]]:
    """A row for each cluster with a judged item, in the order of their names; [] where every item stands alone."""
    found: dict[str, list[ItemResult]] = defaultdict(list)
    for result in results:
        if result.cluster and not result.not_run:
            found[result.cluster].append(result)
    return [{"cluster": name, **_scored(members)} for name, members in sorted(found.items())]


def mean_of(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any] | None:
    """The mean over rows that have an interval, each counting the same, and its standard error; None for fewer than
    two. A row's own error is the larger of its interval's and the cluster-robust one."""
    counted = [row for row in rows if row["low"] is not None]
    if len(counted) < 2:
        return None
    own = [max(standard_error(row["low"], row["high"]), row.get("cluster_error") or 0.0) for row in counted]
    return {
        "n": len(counted),
        "score": math.fsum(row["score"] for row in counted) / len(counted),
        "error": math.sqrt(math.fsum(error * error for error in own)) / len(counted),
    }


def _scored(judged: Sequence[ItemResult]) -> dict[str, Any]:
    n, total = len(judged), math.fsum(result.score for result in judged)
    interval = wilson(total, n)
    return {
        "judged": n,
        "score": total / n if n else None,
        "low": interval[0] if interval else None,
        "high": interval[1] if interval else None,
    }
