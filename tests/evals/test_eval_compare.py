"""Two runs paired by item: verdicts of planted flips, and what is refused."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from evals.compare import Comparison, NotComparable, at_floor, compare, pooled
from evals.run import ItemResult, RunInfo

INFO = RunInfo(
    task="t", version=1, items=0, group=8, chance=0.25, margin=2, template_sha256="", backend={"stack": "said"}
)


def results(scores: Sequence[float], clusters: int = 0) -> list[ItemResult]:
    return [
        ItemResult(
            item=f"i{i}", cluster=f"c{i % clusters}" if clusters else "", prompt_sha256=f"p{i}", prompt_ids=(i,),
            output="x", score=score, extracted="", why="", not_run=False, prompt_tokens=1, tokens=10,
            finish_reason="stop",
        )
        for i, score in enumerate(scores)
    ]  # fmt: skip


def judged(reference: Sequence[float], candidate: Sequence[float], clusters: int = 0) -> Comparison:
    info = replace(INFO, items=len(reference))
    return compare(info, info, results(reference, clusters), results(candidate, clusters))


def planted(n: int, right: float, losses: int, wins: int) -> tuple[list[float], list[float]]:
    """A reference with a share of right answers, and a candidate that loses and wins some."""
    reference = [1.0] * int(n * right) + [0.0] * (n - int(n * right))
    candidate = list(reference)
    candidate[:losses] = [0.0] * losses
    candidate[n - wins :] = [1.0] * wins
    return reference, candidate


@pytest.mark.parametrize(
    ("n", "losses", "wins", "verdict"),
    [(4000, 20, 20, "non-inferior"), (4000, 200, 20, "worse"), (60, 1, 1, "underpowered"), (60, 12, 0, "worse"),
     (60, 0, 0, "underpowered"), (4000, 0, 0, "non-inferior")],
)  # fmt: skip
def test_verdicts(n: int, losses: int, wins: int, verdict: str) -> None:
    found = judged(*planted(n, 0.7, losses, wins))
    assert found.verdict == verdict, found.why
    assert (found.wins, found.losses) == (wins, losses)
    assert found.drop == pytest.approx((losses - wins) / n)
    assert found.flipped[:losses] == tuple(f"i{i}" for i in range(losses))
    assert len(found.flipped) == losses + wins


def test_a_garbage_model_comes_out_worse() -> None:
    reference, _ = planted(200, 0.9, 0, 0)
    assert judged(reference, [0.0] * 200).verdict == "worse"


def test_the_larger_bound_holds_where_items_cluster() -> None:
    reference, candidate = planted(4000, 0.7, 0, 0)
    for i in range(0, 40, 4):  # all losses in one cluster of four
        candidate[i] = 0.0
    apart, together = judged(reference, candidate), judged(reference, candidate, clusters=4)
    assert together.cluster_upper is not None
    assert together.upper == together.cluster_upper > together.tango_upper == apart.tango_upper


def test_a_reference_at_the_floor_gates_nothing() -> None:
    assert judged(*planted(200, 0.3, 10, 0)).verdict == "at floor"
    assert at_floor(0.9, 1, 0.25, 2)
    assert pooled([judged(*planted(200, 0.3, 10, 0))]).verdict == "undecided: gate"


def test_pooled_counts_each_task_once() -> None:
    good, bad = judged(*planted(4000, 0.7, 20, 20)), judged(*planted(4000, 0.7, 200, 20))
    assert pooled([good, good]).verdict == "non-inferior"
    assert pooled([good, bad]).verdict == "worse"
    assert pooled([good, bad]).drop == pytest.approx((good.drop + bad.drop) / 2)


def test_other_questions_are_refused() -> None:
    reference, candidate = planted(20, 0.7, 1, 0)
    info = replace(INFO, items=20)
    ours, theirs = results(reference), results(candidate)
    for field, value in (("version", 2), ("template_sha256", "x"), ("task", "u"), ("items", 21)):
        with pytest.raises(NotComparable, match=field):
            compare(info, replace(info, **{field: value}), ours, theirs)  # type: ignore[arg-type]
    for change, word in (
        ({"item": "other"}, "other"),
        ({"prompt_sha256": "x"}, "prompt"),
        ({"prompt_ids": (9, 9)}, "token ids"),
    ):
        with pytest.raises(NotComparable, match=word):
            compare(info, info, ours, [replace(theirs[0], **change), *theirs[1:]])  # type: ignore[arg-type]
    with pytest.raises(NotComparable, match="not finished"):
        compare(info, info, ours, theirs[:-1])


def test_items_that_could_not_be_judged_on_a_side_are_left_out() -> None:
    reference, candidate = planted(20, 0.7, 2, 0)
    info = replace(INFO, items=20)
    theirs = results(candidate)
    theirs[0] = replace(theirs[0], not_run=True)
    found = compare(info, info, results(reference), theirs)
    assert (found.n, found.losses) == (19, 1)
