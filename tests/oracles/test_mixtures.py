"""What the engine does where mlx-lm's mixtures are wrong, and the order of a cast that parity's cells do not reach."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import mlx.core as mx
import pytest

from engine import errors, load
from oracles.client import Worker
from oracles.contract import Probe, StackConfig
from oracles.layouts.moe1 import bailing
from oracles.recipe import Form, find_recipe
from oracles.tiny import write_model

IDS = tuple(range(2, 30))
Weights = dict[str, mx.array]


@pytest.fixture(scope="module")
def builder() -> Iterator[Worker]:
    with Worker(StackConfig(stack="mlx-lm", model="", compile=False)) as worker:
        yield worker


def edited(saved: Path, folder: Path, edit: Callable[[Weights, dict[str, Any]], Weights]) -> Path:
    """A copy of a model with other weights and whatever `edit` did to its config."""
    config = json.loads((saved / "config.json").read_text(encoding="utf-8"))
    weights = mx.load(str(saved / "model.safetensors"))
    assert isinstance(weights, dict)
    changed = edit(weights, config)
    write_model(folder, config, changed)
    return folder


def test_a_head_is_normalised_before_the_cast(builder: Worker, tmp_path: Path) -> None:
    folder = builder.make(find_recipe("bailing_moe-normhead"), Form(dtype="bfloat16"), tmp_path)
    logits = []
    for stack in ("engine", "mlx-lm"):
        with Worker(StackConfig(stack=stack, model=str(folder), dtype="float32", compile=False)) as worker:
            logits.append(worker.probe(Probe(token_ids=IDS)).tensors["logits"])
    assert mx.array_equal(*logits)


def test_a_packed_head_is_left_alone(builder: Worker, tmp_path: Path) -> None:
    saved = builder.make(find_recipe("bailing_moe"), Form(quant="q4g32"), tmp_path)

    def ask(weights: Weights, config: dict[str, Any]) -> Weights:
        config["norm_head"] = True
        return weights

    same = edited(saved, tmp_path / "asked", ask)
    assert mx.array_equal(load(saved).logits(IDS), load(same).logits(IDS))
    dense = builder.make(find_recipe("bailing_moe"), Form(), tmp_path)
    changed = edited(dense, tmp_path / "dense", ask)
    assert not mx.array_equal(load(dense).logits(IDS), load(changed).logits(IDS))


def test_a_normalised_head_must_be_there(builder: Worker, tmp_path: Path) -> None:
    saved = builder.make(find_recipe("bailing_moe-tied-noshared"), Form(), tmp_path)

    def ask(weights: Weights, config: dict[str, Any]) -> Weights:
        config["norm_head"] = True
        return weights

    with pytest.raises(errors.InvalidValue, match="norm_head"):
        load(edited(saved, tmp_path / "asked", ask))


def test_biases_of_original_experts_are_stacked(builder: Worker, tmp_path: Path) -> None:
    saved = builder.make(find_recipe("bailing_moe-bias"), Form(), tmp_path)

    def original(weights: Weights, config: dict[str, Any]) -> Weights:
        out = bailing(weights, config)
        for key in [k for k in out if ".switch_mlp." in k]:
            at, name = key.split(".switch_mlp.")
            out |= {f"{at}.experts.{e}.{name}": row for e, row in enumerate(out.pop(key))}
        assert "model.layers.1.mlp.experts.0.up_proj.bias" in out
        return out

    hub = edited(saved, tmp_path / "hub", original)
    assert mx.array_equal(load(saved).logits(IDS), load(hub).logits(IDS))


@pytest.mark.parametrize("name", ["mixtral", "glm4_moe", "minimax", "deepseek"])
def test_scaled_ropes_are_applied_or_refused(builder: Worker, tmp_path: Path, name: str) -> None:
    saved = builder.make(find_recipe(name), Form(), tmp_path)

    def scaled(kind: str) -> Callable[[Weights, dict[str, Any]], Weights]:
        def edit(weights: Weights, config: dict[str, Any]) -> Weights:
            config["rope_scaling"] = {"type": kind, "factor": 4.0, "original_max_position_embeddings": 16}
            return weights

        return edit

    yarn = edited(saved, tmp_path / "yarn", scaled("yarn"))
    assert not mx.array_equal(load(saved).logits(IDS), load(yarn).logits(IDS))
    with pytest.raises(errors.UnsupportedConfig, match="stretched"):
        load(edited(saved, tmp_path / "unknown", scaled("stretched")))
