"""Recipes and what mlx-lm's classes make of them: drawn by name, cast and packed as mlx-lm converts."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path

import mlx.core as mx
import numpy as np
import pytest

from engine import errors
from oracles.client import Worker
from oracles.contract import OracleRefused, Probe, StackConfig
from oracles.recipe import Form, Recipe, draw, find_recipe, form_folder, kind_of, recipe_from, recipes

EMPTY = StackConfig(stack="mlx-lm", model="", compile=False)
IDS = tuple(range(2, 22))


@pytest.fixture(scope="module")
def builder() -> Iterator[Worker]:
    with Worker(EMPTY) as worker:
        yield worker


def weights_of(folder: Path) -> dict[str, mx.array]:
    loaded = mx.load(str(folder / "model.safetensors"))
    assert isinstance(loaded, dict)
    return loaded


def test_every_group_loads_and_a_recipe_survives_json() -> None:
    found = recipes()
    assert len(found) > 50
    for name, recipe in found.items():
        assert recipe_from(json.loads(json.dumps(asdict(recipe)))) == recipe, name


def test_an_unknown_recipe_lists_the_known() -> None:
    with pytest.raises(errors.UnknownField, match="qwen3"):
        find_recipe("qwen33")


def test_a_value_depends_on_seed_and_name_only() -> None:
    recipe = Recipe(config={"model_type": "llama"}, spread={r"\.sinks$": (2.0, 0.001)})
    first = draw(recipe, "model.layers.0.mlp.up_proj.weight", (4, 8), 0)
    assert np.array_equal(first, draw(recipe, "model.layers.0.mlp.up_proj.weight", (4, 8), 0))
    assert not np.array_equal(first, draw(recipe, "model.layers.1.mlp.up_proj.weight", (4, 8), 0))
    assert not np.array_equal(first, draw(recipe, "model.layers.0.mlp.up_proj.weight", (4, 8), 1))
    assert abs(draw(recipe, "a.norm.weight", (4000,), 0).mean() - 1.0) < 0.05
    assert abs(draw(recipe, "a.gate.bias", (4000,), 0).mean()) < 0.05
    assert abs(draw(recipe, "a.sinks", (64,), 0).mean() - 2.0) < 0.05


def test_kinds_have_no_indices() -> None:
    assert kind_of("model.layers.3.mlp.experts.11.w1.weight") == "model.layers.*.mlp.experts.*.w1.weight"
    assert kind_of("lm_head.weight") == "lm_head.weight"


@pytest.mark.parametrize(
    ("fields", "word"),
    [
        ({"config": {}}, "model_type"),
        ({"config": {"model_type": "llama", "quantization": {}}}, "quantization"),
        ({"config": {"model_type": "llama"}, "quants": ("q3",)}, "q3"),
    ],
)
def test_a_recipe_that_says_too_little_or_too_much_is_refused(fields: dict[str, object], word: str) -> None:
    with pytest.raises(errors.InvalidValue, match=word):
        Recipe(**fields)  # type: ignore[arg-type]


@pytest.mark.parametrize("fields", [{"dtype": "int8"}, {"quant": "q5"}, {"layout": "gguf"}])
def test_unknown_forms_are_refused(fields: dict[str, str]) -> None:
    with pytest.raises(errors.InvalidValue, match=next(iter(fields.values()))):
        Form(**fields)  # type: ignore[arg-type]
    with pytest.raises(errors.InvalidValue, match="hub"):
        Form(layout="hub", quant="q4g32")


def test_a_packing_that_the_recipe_does_not_allow_is_refused(tmp_path: Path) -> None:
    with pytest.raises(errors.InvalidValue, match="q4g64"):
        form_folder(replace(find_recipe("qwen3"), quants=("q4g32",)), Form(quant="q4g64"), tmp_path)


def test_the_folder_is_what_the_oracle_loads_and_is_made_once(builder: Worker, tmp_path: Path) -> None:
    recipe = find_recipe("qwen3")
    folder = builder.make(recipe, Form(), tmp_path)
    assert sorted(path.name for path in folder.iterdir()) == ["config.json", "model.safetensors"]
    made = folder.stat().st_ctime_ns
    assert builder.make(recipe, Form(), tmp_path) == folder
    assert folder.stat().st_ctime_ns == made
    assert [path.name for path in tmp_path.iterdir()] == [folder.name]
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    assert config == {**recipe.config, "torch_dtype": "float32"}
    for name, value in weights_of(folder).items():
        assert value.dtype == mx.float32
        assert np.array_equal(np.array(value), draw(recipe, name, value.shape, 0)), name
    builder.load(replace(EMPTY, model=str(folder)))
    assert set(builder.parameters()) == set(weights_of(folder))


def test_casting_keeps_what_the_module_keeps_in_float32(builder: Worker, tmp_path: Path) -> None:
    dtypes = {
        k: v.dtype for k, v in weights_of(builder.make(find_recipe("Klear"), Form(dtype="bfloat16"), tmp_path)).items()
    }
    kept = {name for name, dtype in dtypes.items() if dtype == mx.float32}
    assert kept == {name for name in dtypes if "expert_bias" in name} != set()
    assert {dtype for name, dtype in dtypes.items() if name not in kept} == {mx.bfloat16}


def test_a_mixed_plan_has_four_and_eight_bits_and_dense_layers(builder: Worker, tmp_path: Path) -> None:
    folder = builder.make(find_recipe("qwen3"), Form(quant="mixed"), tmp_path)
    quantization = json.loads((folder / "config.json").read_text(encoding="utf-8"))["quantization"]
    held = weights_of(folder)
    bits = {path: entry["bits"] for path, entry in quantization.items() if isinstance(entry, dict)}
    assert set(bits.values()) == {8}
    assert bits.keys() >= {"model.layers.1.mlp.up_proj", "model.layers.0.self_attn.v_proj"}
    assert "model.layers.0.mlp.up_proj.scales" in held
    dense = [name for name in held if name.endswith("o_proj.weight") and held[name].dtype == mx.float32]
    assert len(dense) == 1
    assert dense[0].replace("weight", "scales") not in held


@pytest.mark.parametrize("quant", ["q4g32", "mxfp4", "mxfp8", "nvfp4"])
def test_packed_forms_load_and_name_their_mode(builder: Worker, tmp_path: Path, quant: str) -> None:
    folder = builder.make(find_recipe("qwen3"), Form(quant=quant), tmp_path)
    mode = json.loads((folder / "config.json").read_text(encoding="utf-8"))["quantization"]["mode"]
    assert mode == ("affine" if quant == "q4g32" else quant)
    builder.load(replace(EMPTY, model=str(folder)))
    scales = {dtype.split()[0] for name, dtype in builder.parameters().items() if name.endswith(".scales")}
    assert scales == ({"mlx.core.float32"} if quant == "q4g32" else {"mlx.core.uint8"})


def test_a_mutation_draws_one_kind_anew_and_nothing_else(builder: Worker, tmp_path: Path) -> None:
    recipe, kind = find_recipe("qwen3"), "model.layers.*.self_attn.q_norm.weight"
    plain, changed = (weights_of(builder.make(recipe, form, tmp_path)) for form in (Form(), Form(mutate=kind)))
    moved = {name for name in plain if not np.array_equal(np.array(plain[name]), np.array(changed[name]))}
    assert moved == {name for name in plain if kind_of(name) == kind}
    with pytest.raises(OracleRefused, match="q_norm"):
        builder.make(recipe, Form(mutate="model.layers.*.nothing"), tmp_path)


def test_the_hub_layout_has_other_names_and_the_oracle_reads_the_same_parameters(
    builder: Worker, tmp_path: Path
) -> None:
    recipe = find_recipe("mixtral")
    folders = [builder.make(recipe, Form(layout=layout), tmp_path) for layout in ("saved", "hub")]
    assert set(weights_of(folders[0])) != set(weights_of(folders[1]))
    held = []
    for folder in folders:
        builder.load(replace(EMPTY, model=str(folder)))
        held.append(builder.parameters())
    assert held[0] == held[1]


def test_a_refused_build_or_load_leaves_the_worker_alive(builder: Worker, tmp_path: Path) -> None:
    with pytest.raises(OracleRefused) as refusal:  # its import calls sys.exit
        builder.make(Recipe(config={"model_type": "olmo"}), Form(), tmp_path)
    assert refusal.value.kind == "SystemExit"
    with pytest.raises(OracleRefused, match="absent"):
        builder.load(replace(EMPTY, model=str(tmp_path / "absent")))
    with pytest.raises(OracleRefused, match="nothing is loaded"):
        builder.probe(Probe(token_ids=IDS))
    folder = builder.make(find_recipe("qwen3"), Form(), tmp_path)
    builder.load(replace(EMPTY, model=str(folder)))
    assert builder.probe(Probe(token_ids=IDS, sizes=(7, 7, 5, 1))).doc["prompt_tokens"] == len(IDS)


def test_a_process_keeps_its_stack_blas_and_fusion(builder: Worker) -> None:
    for change in ({"stack": "engine"}, {"compile": True}, {"blas": "openblas"}):
        with pytest.raises(errors.InvalidValue, match="process"):
            builder.load(replace(EMPTY, model="m", **change))  # type: ignore[arg-type]


def test_only_mlx_lm_builds(tmp_path: Path) -> None:
    with Worker(replace(EMPTY, stack="engine")) as worker, pytest.raises(OracleRefused, match="mlx-lm"):
        worker.make(find_recipe("qwen3"), Form(), tmp_path)
