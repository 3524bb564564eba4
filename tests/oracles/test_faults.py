"""Every entry of the fault register is shown live; one that no longer shows has to leave the register."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor

import pytest

from engine import SamplingParams, errors
from oracles.faults import FAULTS, as_row, load_fault, probe_fault
from oracles.faults.entry import Shown


@pytest.fixture(scope="module")
def probes(request: pytest.FixtureRequest) -> Iterator[dict[str, Future[Shown]]]:
    """The probes of the tests that were chosen, two at a time: each is a process that mostly starts up."""
    chosen = {item.callspec.params["name"] for item in request.session.items if "probes" in item.fixturenames}
    with ThreadPoolExecutor(max_workers=2) as pool:
        yield {name: pool.submit(probe_fault, name) for name in sorted(chosen)}


@pytest.mark.matrix
@pytest.mark.parametrize("name", sorted(FAULTS))
def test_the_fault_is_still_there(name: str, probes: dict[str, Future[Shown]]) -> None:
    shown = probes[name].result()
    assert shown.live, f"{name} is mended ({shown.evidence}): take it out of the register"
    assert shown.evidence


def test_entries_say_where_what_and_what_we_do() -> None:
    for name in FAULTS:
        fault = load_fault(name)
        assert all((fault.oracle, fault.where, fault.what, fault.ours)), name
        row = as_row(name, Shown(True, "seen"))
        assert (row["name"], row["live"], row["evidence"]) == (name, True, "seen")


def test_an_unknown_fault_lists_the_known() -> None:
    with pytest.raises(errors.UnknownField, match="max-kv-size-ignored"):
        load_fault("everything")


def test_the_engine_knows_no_ignored_cache_limit() -> None:
    with pytest.raises(errors.UnknownField, match="max_kv_size"):
        SamplingParams.from_dict({"max_kv_size": 16})
