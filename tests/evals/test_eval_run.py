"""A run of a task: groups are the unit of what is kept, and a killed run goes on to the same result."""

from __future__ import annotations

from dataclasses import replace

import pytest
from eval_tasks import Guarded, Kept, Said, Sums

from engine import errors
from evals.run import Asked, _judged, describe, run_task
from evals.task import Answer, Likelihood


def quiet(_label: str, _done: int, _total: int | None) -> None:
    """No bars."""


def test_every_item_has_its_result() -> None:
    backend, ledger = Said(wrong=[3, 7], refuses=[5]), Kept()
    info = describe(Sums(), backend, None, 8)
    results = run_task(Sums(), backend, ledger, info, quiet)
    assert [r.item for r in results] == [f"sum-{i}" for i in range(20)]
    assert [i for i, r in enumerate(results) if not r.score and not r.not_run] == [3, 7]
    assert [(i, r.why) for i, r in enumerate(results) if r.not_run] == [(5, "too long")]
    assert backend.sizes == [8, 8, 4]
    assert results[3].output == "5"
    assert results[3].prompt_ids == (3,)
    assert len({r.prompt_sha256 for r in results}) == 20


@pytest.mark.parametrize("dies", [0, 7, 8, 13, 19])
def test_a_killed_run_goes_on_to_what_one_run_would_have_given(dies: int) -> None:
    whole, ledger = Kept(), Kept()
    info = describe(Sums(), Said(wrong=[3]), None, 8)
    want = run_task(Sums(), Said(wrong=[3]), whole, info, quiet)
    with pytest.raises(KeyboardInterrupt):
        run_task(Sums(), Said(wrong=[3], dies=dies), ledger, info, quiet)
    again = Said(wrong=[3])
    assert run_task(Sums(), again, ledger, info, quiet) == want
    assert len(again.asked) == 20 - dies // 8 * 8  # whole groups are not asked again
    assert ledger.kept == whole.kept


def test_answers_that_could_not_be_judged_are_judged_later_without_asking(monkeypatch: pytest.MonkeyPatch) -> None:
    whole, ledger = Kept(), Kept()
    info = describe(Guarded(), Said(wrong=[3]), None, 8)
    shut = run_task(Guarded(), Said(wrong=[3]), ledger, info, quiet)
    assert all((r.not_run, r.why) == (True, "no sandbox") for r in shut)
    still = Said(wrong=[3])
    assert run_task(Guarded(), still, ledger, info, quiet) == shut
    monkeypatch.setattr(Guarded, "open", True)
    want = run_task(Guarded(), Said(wrong=[3]), whole, info, quiet)
    later = Said(wrong=[3])
    assert run_task(Guarded(), later, ledger, info, quiet) == want
    assert (still.asked, later.asked) == ([], [])
    assert ledger.kept == whole.kept
    assert run_task(Guarded(), Said(), ledger, info, quiet) == want  # judged items are not touched again


def test_refused_questions_are_put_again_and_only_they() -> None:
    whole, ledger = Kept(), Kept()
    info = describe(Sums(), Said(), None, 8)
    run_task(Sums(), Said(refuses=[5, 6, 19]), ledger, info, quiet)
    half = Said(refuses=[6])
    found = run_task(Sums(), half, ledger, info, quiet)
    assert [r.item for r in found if r.not_run] == ["sum-6"]
    assert (half.asked, half.sizes) == (["5+1=", "6+1=", "19+1="], [2, 1])
    last = Said()
    assert run_task(Sums(), last, ledger, info, quiet) == run_task(Sums(), Said(), whole, info, quiet)
    assert last.asked == ["6+1="]
    assert ledger.kept == whole.kept


def test_a_kept_result_holds_all_that_was_answered() -> None:
    said = Answer(text="", finish_reason="stop", prompt_tokens=3, tokens=1)
    scored = Answer(likelihoods=(Likelihood(nats=-1.25, tokens=2, greedy=True),), prompt_tokens=4)
    for answer in (said, scored):
        asked = Asked(prompt="p", answer=answer)
        assert _judged(Sums(), Sums().items()[0], asked).answer == answer
    assert _judged(Sums(), Sums().items()[0], Asked(prompt="p", refused="too long")).answer is None


def test_a_run_is_named_by_everything_that_a_result_depends_on() -> None:
    info = describe(Sums(), Said(), 12, 4)
    changed = [
        replace(info, version=2),
        replace(info, items=13),
        replace(info, group=8),
        replace(info, template_sha256="x"),
        replace(info, backend={"stack": "other"}),
        replace(info, task="other"),
    ]
    assert len({info.id, *(each.id for each in changed)}) == 7
    assert describe(Sums(), Said(), 12, 4).id == info.id


def test_more_items_than_there_are_is_an_error() -> None:
    for count in (0, 21):
        with pytest.raises(errors.InvalidValue, match="items of sums"):
            describe(Sums(), Said(), count, 8)
