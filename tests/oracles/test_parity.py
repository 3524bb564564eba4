"""Parity runs both stacks live: equal where nothing was touched, different where anything was."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import mlx.core as mx
import pytest

from oracles.matrix import PROMPT, STEPS, random_ids, tiny_cells, tiny_group
from oracles.parity import DIFFERS, EQUAL, FAILED, NOT_CLAIMED, NOT_RUN, Cell, CellResult, run_cells
from oracles.tiny import FAMILIES, tiny_model


@pytest.fixture(scope="module")
def quick() -> list[CellResult]:
    return list(run_cells(tiny_cells(quick=True), blas="bundled"))


def test_every_family_is_equal_to_mlx_lm_forced_greedy_and_sampled(quick: list[CellResult]) -> None:
    native = [r for r in quick if r.cell.kv == "native" and r.cell.reference == "mlx-lm"]
    assert {r.cell.name for r in native} == {f"tiny-{family}" for family in FAMILIES}
    assert [(r.cell.name, r.cell.kind, r.status, r.difference) for r in native] == [
        (r.cell.name, r.cell.kind, EQUAL, None) for r in native
    ]
    assert {r.positions for r in native if r.cell.kind == "forced"} == {PROMPT + STEPS}


def test_quantised_kv_on_packed_bf16_weights_is_equal(quick: list[CellResult]) -> None:
    packed = [r for r in quick if "q4" in r.cell.dtype]
    assert len(packed) == 3
    assert [r.status for r in packed] == [EQUAL] * 3


def test_free_runs_are_not_all_one_token(quick: list[CellResult]) -> None:
    for result in quick:
        if result.cell.kind != "forced":
            assert result.distinct_tokens >= 5, result.cell.name


def test_what_cannot_be_compared_is_never_a_pass(quick: list[CellResult]) -> None:
    (refused,) = [r for r in quick if r.cell.name == "tiny-gemma2" and r.cell.kv != "native"]
    assert (refused.status, refused.why[:17]) == (NOT_RUN, "mlx-lm: TypeError")


def test_a_plan_per_layer_is_equal_to_optiq(quick: list[CellResult]) -> None:
    (mixed,) = [r for r in quick if r.cell.kv.startswith("mixed:")]
    assert (mixed.status, mixed.cell.reference) == (EQUAL, "optiq")


def test_chunks_agree_under_the_bundled_blas_and_are_not_claimed_under_openblas(quick: list[CellResult]) -> None:
    (between,) = [r for r in quick if r.cell.reference == "engine"]
    assert between.status == EQUAL
    assert [r.status for r in run_cells([between.cell], blas="openblas")] == [NOT_CLAIMED]


def perturbed(tmp_path: Path, change: Callable[[dict[str, Any], dict[str, mx.array]], None]) -> Cell:
    """The llama cell with a changed copy of the model on the engine's side."""
    original = tiny_model("llama")
    copy = tmp_path / "model"
    shutil.copytree(original, copy)
    config = json.loads((copy / "config.json").read_text(encoding="utf-8"))
    weights = mx.load(str(copy / "model.safetensors"))
    assert isinstance(weights, dict)
    mx.eval(weights)
    change(config, weights)
    (copy / "config.json").write_text(json.dumps(config), encoding="utf-8")
    mx.save_safetensors(str(copy / "model.safetensors"), weights)
    (cell,) = tiny_group("llama", "float32", None, "native", 7, ("forced",))
    return replace(cell, model=str(copy), reference_model=str(original))


def _one_weight(config: dict[str, Any], weights: dict[str, mx.array]) -> None:
    name = "model.layers.1.mlp.down_proj.weight"
    weights[name][3, 5] = weights[name][3, 5] * (1 + 2**-20)


def _epsilon(config: dict[str, Any], weights: dict[str, mx.array]) -> None:
    config["rms_norm_eps"] *= 1.01


def _norm(config: dict[str, Any], weights: dict[str, mx.array]) -> None:
    name = "model.layers.2.post_attention_layernorm.weight"
    weights[name] = mx.roll(weights[name], 1)


def _rope(config: dict[str, Any], weights: dict[str, mx.array]) -> None:
    config["rope_theta"] = 10001.0


@pytest.mark.parametrize(
    ("change", "layer"), [(_one_weight, "layer.1"), (_epsilon, "layer.0"), (_norm, "layer.2"), (_rope, "layer.0")]
)
def test_a_mutation_makes_the_cell_differ_and_bisect_finds_the_layer(
    tmp_path: Path, change: Callable[[dict[str, Any], dict[str, mx.array]], None], layer: str
) -> None:
    (result,) = run_cells([perturbed(tmp_path, change)], blas="bundled", bisect=True)
    assert result.status == DIFFERS
    assert result.difference is not None
    assert result.difference.max_abs_diff is not None
    assert result.difference.max_abs_diff > 0
    assert result.bisect is not None
    assert result.bisect.tensor == layer


def test_an_engine_that_fails_where_the_oracle_runs_is_a_failure(tmp_path: Path) -> None:
    cell = replace(
        tiny_group("llama", "float32", None, "native", 7, ("forced",))[0],
        model=str(tmp_path / "absent"),
        reference_model=str(tiny_model("llama")),
    )
    (result,) = run_cells([cell], blas="bundled")
    assert result.status == FAILED
    assert "absent" in result.why


def test_probe_ids_avoid_the_end_of_sequence() -> None:
    ids = random_ids(97, 500)
    assert min(ids) == 2
    assert max(ids) == 96
    assert random_ids(97, 500) == ids != random_ids(97, 500, seed=1)
