"""Where a step's time goes: planted waits are found where they were planted."""

from __future__ import annotations

import time

import mlx.core as mx
import pytest

from engine import errors
from oracles.contract import HostProbe
from oracles.host_timing import timed_host

BUILD_S = 0.004


def test_the_host_s_own_work_is_building_and_the_parts_make_the_step() -> None:
    fed: list[int] = []

    def forward(ids: mx.array) -> mx.array:
        fed.append(ids.shape[1])
        time.sleep(BUILD_S)  # what Python does before an operation is there
        return mx.zeros((*ids.shape, 16)) + ids[..., None]

    found = timed_host(forward, HostProbe(token_ids=(5, 6, 7), steps=6))
    assert fed[0] == 3
    assert set(fed[1:]) == {1}
    assert BUILD_S <= found["build_s"] < 10 * BUILD_S
    assert found["encode_s"] < found["build_s"]
    assert found["wait_s"] < found["build_s"]
    assert found["step_s"] >= found["build_s"]
    assert found["device_s"] is None or found["device_s"] < found["step_s"]


def test_a_probe_without_tokens_or_steps_is_refused() -> None:
    with pytest.raises(errors.EmptyPrompt):
        HostProbe(token_ids=(), steps=4)
    with pytest.raises(errors.InvalidValue, match="steps"):
        HostProbe(token_ids=(1,), steps=1)
