"""The scored rows of one answer: their dtype, their cache plan, and the sequences that fit a plan."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import mlx.core as mx
import numpy as np
import pytest
from eval_fakes import SEQUENCES, FakeArm, config

from engine import errors
from evals.fidelity import run_fidelity
from evals.gate import LeverNotApplied
from evals.protocol import Plan, check_sequences, scored_logits, targets
from oracles.contract import SchemeNotLive, StackConfig, Trace

PLAN = Plan("step", 16, 4)


def answer(dtype: mx.Dtype = mx.float32) -> Trace:
    arm = FakeArm(config())
    arm.wait_ready()
    trace = arm.probe(PLAN.probe(SEQUENCES[0][:16]))
    return Trace({"logits": trace.tensors["logits"].astype(dtype)}, trace.doc)


@pytest.mark.parametrize("dtype", [mx.bfloat16, mx.float16])
def test_16_bit_logits_widen_to_fp32_without_loss(dtype: mx.Dtype) -> None:
    trace = answer(dtype)
    rows = scored_logits(trace, config(), PLAN, 0)
    assert (rows.dtype, rows.shape) == (np.float32, (4, 40))
    assert mx.array_equal(mx.array(rows).astype(dtype), trace.tensors["logits"][12:]).item()
    assert not np.array_equal(rows, np.array(answer().tensors["logits"])[12:])  # 16 bits did lose some


def test_the_target_of_a_scored_position_is_the_next_token_of_the_text() -> None:
    ids = list(range(100, 117))
    assert targets(ids, PLAN).tolist() == [113, 114, 115, 116]
    assert targets(ids, Plan("forward", 16)).tolist() == list(range(102, 117))


@pytest.mark.parametrize("length", [0, 15, 16, 18])
def test_a_sequence_of_another_length_than_the_plan_feeds_is_refused(length: int) -> None:
    check_sequences(SEQUENCES, PLAN)
    with pytest.raises(errors.InvalidValue, match=rf"sequence 1='{length} tokens' .*16 \+ 1"):
        check_sequences([SEQUENCES[0], list(range(length))], PLAN)


def mixed(folder: Path, *, live: str = "mixed", layers: tuple[int | None, ...] = (8, None, 4)) -> np.ndarray:
    """An answer under a plan of 8 bits in layer 0 and 4 in layer 2; `layers`: what its caches are."""
    file = folder / "kv_config.json"
    file.write_text(json.dumps([{"layer_idx": i, "bits": b, "group_size": 64} for i, b in ((0, 8), (2, 4))]))
    caches = [{"scheme": "native" if bits is None else f"affine{bits}:g64"} for bits in layers]
    doc = dict(answer().doc) | {"kv_live": ["native"] * 12 + [live] * 4, "caches": caches, "kv_status": live}
    arm = StackConfig(stack="optiq", model="m", kv=f"mixed:{file}")
    return scored_logits(Trace(answer().tensors, doc), arm, PLAN, 0)


def test_a_mixed_plan_counts_where_each_layer_is_of_its_plan(tmp_path: Path) -> None:
    assert mixed(tmp_path).shape == (4, 40)
    with pytest.raises(LeverNotApplied, match="'native' instead of 'mixed'; 0 of 4"):
        mixed(tmp_path, live="native")
    with pytest.raises(LeverNotApplied, match="'affine8:g64' instead of 'mixed'; 0 of 4"):
        mixed(tmp_path, live="affine8:g64")
    with pytest.raises(SchemeNotLive, match="layer 2: affine8:g64 instead of affine4:g64"):
        mixed(tmp_path, layers=(8, None, 8))


def skipping(live: str, *schemes: str, layout: str = "full") -> np.ndarray:
    caches = [{"scheme": scheme, "layout": layout if scheme == "native" else "full"} for scheme in schemes]
    doc = dict(answer().doc) | {"kv_live": ["native"] * 12 + [live] * 4, "caches": caches, "kv_status": live}
    return scored_logits(Trace(answer().tensors, doc), config("kv8:skip"), PLAN, 0)


def test_a_skipped_layer_counts_where_another_holds_the_scheme() -> None:
    assert skipping("mixed", "affine8:g64", "native").shape == (4, 40)
    assert skipping("affine8:g64", "affine8:g64", "affine8:g64").shape == (4, 40)
    with pytest.raises(LeverNotApplied, match="'native' instead of 'affine8:g64' or 'mixed'; 0 of 4"):
        skipping("native", "affine8:g64", "native")
    with pytest.raises(SchemeNotLive, match="layer 0: native instead of affine8:g64"):
        skipping("mixed", "native", "native")
    with pytest.raises(SchemeNotLive, match="layer 1: affine4:g64 instead of affine8:g64"):
        skipping("mixed", "affine8:g64", "affine4:g64")


def test_a_recurrent_state_is_of_no_scheme(tmp_path: Path) -> None:
    """A plan that names every layer with keys is one scheme, whatever the states beside them are."""
    file = tmp_path / "kv_config.json"
    file.write_text(json.dumps([{"layer_idx": 1, "bits": 8, "group_size": 64}]))
    caches = [{"scheme": "native", "layout": "state:2"}, {"scheme": "affine8:g64", "layout": "full"}]
    doc = dict(answer().doc) | {"kv_live": ["affine8:g64"] * 16, "caches": caches, "kv_status": "affine8:g64"}
    assert scored_logits(Trace(answer().tensors, doc), config(f"mixed:{file}"), PLAN, 0).shape == (4, 40)


def test_the_ids_of_a_run_are_named_by_a_digest_of_all_of_them() -> None:
    def digest(sequences: list[list[int]]) -> str:
        return run_fidelity(config(), [config("kv8")], sequences, tail=4, start=FakeArm)[0].ids_sha256

    assert digest(SEQUENCES) == hashlib.sha256(json.dumps(SEQUENCES).encode()).hexdigest()
    changed = [*SEQUENCES[:-1], [*SEQUENCES[-1][:-1], (SEQUENCES[-1][-1] + 1) % 40]]
    assert digest(changed) != digest(SEQUENCES)
