"""Every entry of the fault register is shown live; one that no longer shows has to leave the register."""

from __future__ import annotations

import pytest

from engine import SamplingParams, errors
from oracles.faults import FAULTS, as_row, load_fault, probe_fault
from oracles.faults.entry import Shown


@pytest.mark.parametrize("name", sorted(FAULTS))
def test_the_fault_is_still_there(name: str) -> None:
    shown = probe_fault(name)
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
