"""Exact comparison: equal is equal, and every kind of difference is named with its place."""

from __future__ import annotations

import mlx.core as mx
import pytest

from oracles.compare import compare_arrays, compare_tensors, compare_tokens, first_layer


def test_equal_arrays_have_no_difference() -> None:
    rows = mx.random.normal((5, 7), key=mx.random.key(0))
    assert compare_arrays("logits", rows, mx.array(rows)) is None


@pytest.mark.parametrize("dtype", [mx.float32, mx.bfloat16, mx.float16])
def test_one_unit_in_the_last_place_is_a_difference(dtype: mx.Dtype) -> None:
    rows = mx.random.normal((5, 7), key=mx.random.key(0)).astype(dtype)
    step = mx.finfo(dtype).eps
    other = mx.array(rows)
    other[3, 2] = other[3, 2] * (1 + step)
    found = compare_arrays("logits", rows, other)
    assert found is not None
    assert (found.tensor, found.position, found.rows) == ("logits", 3, 1)
    assert found.max_abs_diff is not None
    assert 0 < found.max_abs_diff < 4 * step


def test_the_largest_difference_and_the_first_row_are_reported() -> None:
    other = mx.zeros((6, 3))
    other[2, 0], other[4, 1] = 0.5, -2.0
    found = compare_arrays("x", mx.zeros((6, 3)), other)
    assert found is not None
    assert (found.position, found.max_abs_diff, found.rows) == (2, 2.0, 2)


def test_shape_and_dtype_must_match() -> None:
    wrong_dtype = compare_arrays("x", mx.zeros((2, 3)), mx.zeros((2, 3), mx.bfloat16))
    wrong_shape = compare_arrays("x", mx.zeros((2, 3)), mx.zeros((3, 3)))
    assert wrong_dtype is not None
    assert "dtype" in wrong_dtype.why
    assert wrong_shape is not None
    assert "shape" in wrong_shape.why


def test_nan_on_one_side_differs_without_bound_and_nan_on_both_is_reported() -> None:
    nan = mx.array([[0.0], [float("nan")]])
    one, both = compare_arrays("x", mx.zeros((2, 1)), nan), compare_arrays("x", nan, nan)
    assert one is not None
    assert (one.position, one.max_abs_diff, one.as_dict()["max_abs_diff"]) == (1, float("inf"), "inf")
    assert both is not None
    assert (both.why, both.position) == ("NaN on both sides", 1)


def test_equal_infinities_are_equal() -> None:
    rows = mx.array([[float("-inf"), 0.0]])
    assert compare_arrays("logprobs", rows, rows) is None


def test_tokens_part_at_the_first_differing_step_or_at_the_shorter_end() -> None:
    assert compare_tokens([1, 2], [1, 2]) is None
    parted, shorter = compare_tokens([1, 2, 3], [1, 5, 3]), compare_tokens([1, 2], [1, 2, 3])
    assert parted is not None
    assert parted.position == 1
    assert shorter is not None
    assert shorter.position == 2


def test_missing_and_left_over_arrays_are_differences() -> None:
    a = {"logits": mx.zeros((1, 1))}
    missing, left_over = compare_tensors(a, {}), compare_tensors({}, a)
    assert missing is not None
    assert missing.why == "missing"
    assert left_over is not None
    assert left_over.why == "not in the reference"


def test_bisect_goes_from_the_embedding_up_in_number_order() -> None:
    same = {f"layer.{i}": mx.zeros((2, 2)) for i in range(-1, 12)} | {"logits": mx.zeros((2, 2))}
    other = same | {"layer.10": mx.ones((2, 2)), "layer.9": mx.ones((2, 2))}
    found = first_layer(same, other)
    assert found is not None
    assert found.tensor == "layer.9"
    assert first_layer(same, dict(same)) is None
