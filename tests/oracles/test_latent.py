"""Latent attention: its two forms, what its configs may not ask for, names of originals that mlx-lm does not read."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import mlx.core as mx
import pytest

from engine import errors, load, parse_kv
from engine.graph.families import build_spec
from engine.graph.latent import LatentAttention, LatentSpec
from engine.graph.params import Weights
from engine.kv.masks import Masks
from engine.kv.plan import KVPlan
from engine.kv.views import DenseView
from oracles.architectures import LOADED_CHUNK, forced
from oracles.client import Worker
from oracles.contract import StackConfig
from oracles.layouts import latent as layouts
from oracles.parity import EQUAL, Cell, Pair
from oracles.recipe import Form, Recipe, find_recipe
from oracles.tiny import write_model


def attention(spec: LatentSpec) -> LatentAttention:
    """Random weights by the names of the parameters of deepseek_v3."""
    arch = build_spec(find_recipe("deepseek_v3").config)
    low = spec.q_rank or 0
    shapes: dict[str, tuple[int, ...]] = {
        "q_a_proj": (low, arch.dim),
        "q_b_proj": (spec.heads * (spec.nope + spec.turned), low),
        "kv_a_proj_with_mqa": (spec.rank + spec.turned, arch.dim),
        "embed_q": (spec.heads, spec.rank, spec.nope),
        "unembed_out": (spec.heads, spec.v_dim, spec.rank),
        "o_proj": (arch.dim, spec.heads * spec.v_dim),
        "q_a_layernorm": (low,),
        "kv_a_layernorm": (spec.rank,),
    }
    mx.random.seed(3)
    arrays = {f"a.{name}.weight": mx.random.normal(shape) * 0.2 for name, shape in shapes.items()}
    return LatentAttention(spec, arch, Weights(arrays, {}, "memory"), "a")


def test_a_query_in_the_latents_space_is_the_query_over_whole_keys() -> None:
    spec = build_spec(find_recipe("deepseek_v3").config).layers[0].attention
    assert isinstance(spec, LatentSpec)
    mixer = attention(spec)
    x = mx.random.normal((2, 9, 64))
    free, turned = mixer.queries(mixer.low_rank(x), 0)
    latent, keys = mixer.latent(x, 0)
    view = DenseView(latent, keys, 0, lambda length, masks: None)  # every key is seen
    whole = mixer.attend(free, turned, view, Masks())
    for i in range(9):
        alone = mixer.attend(free[:, :, i : i + 1], turned[:, :, i : i + 1], view, Masks())
        # Products of 64 and 32 terms in another order: float32 keeps 7 digits of values near 1.
        assert mx.abs(whole[:, :, i : i + 1] - alone).max() < 1e-5


def test_a_latent_cache_is_kept_as_it_is_and_whole_heads_may_be_quantised() -> None:
    kept = {name: build_spec(find_recipe(name).config).caches[0] for name in ("deepseek_v2", "deepseek_v3")}
    assert kept["deepseek_v2"].only_native is None
    assert kept["deepseek_v2"].head_dims == (48, 32)
    assert kept["deepseek_v3"].only_native == "attends the latent that it keeps"
    assert kept["deepseek_v3"].head_dims == (64, 16)
    assert [kept[name].block for name in kept] == [1, None]


@pytest.mark.parametrize(
    ("recipe", "change", "says"),
    [
        ("deepseek_v2", {"norm_topk_prob": True}, "norm_topk_prob=True"),
        ("deepseek_v2", {"topk_method": "noaux_tc"}, "topk_method='noaux_tc'"),
        ("deepseek_v2-groups", {"n_group": 3}, "n_group"),
        ("deepseek_v3", {"scoring_func": "softmax"}, "scoring_func='softmax'"),
        ("deepseek_v3", {"rope_interleave": False}, "rope_interleave=False"),
        ("deepseek_v3", {"q_lora_rank": "many"}, "q_lora_rank='many'"),
        ("deepseek_v3", {"rope_scaling": {"type": "yarn", "factor": "large"}}, r"rope_scaling\.factor='large'"),
        ("longcat_flash", {"zero_expert_type": "copy"}, "zero_expert_type='copy'"),
        ("longcat_flash", {"attention_method": "GQA"}, "attention_method='GQA'"),
        ("longcat_flash_ngram", {"emb_split_num": 65}, "emb_split_num"),
        ("longcat_flash_ngram", {"emb_neighbor_num": 1}, "emb_neighbor_num"),
        ("minicpm3", {"rope_scaling": {"type": "yarn"}}, r"rope_scaling\.type='yarn'"),
        ("mistral4", {"rope_parameters": {"type": "yarn"}}, r"rope_parameters\.llama_4_scaling_beta"),
    ],
)
def test_a_config_names_the_field_that_cannot_be_followed(recipe: str, change: dict[str, Any], says: str) -> None:
    with pytest.raises(errors.InvalidValue, match=says):
        build_spec({**find_recipe(recipe).config, **change})


@pytest.mark.parametrize("name", ["deepseek_v2", "minicpm3"])
def test_a_config_without_scaling_has_a_plain_rope(name: str) -> None:
    assert build_spec({**find_recipe(name).config, "rope_scaling": None}).layers[0].attention.rope.scaling == {}


def test_longcat_flash_without_factors() -> None:
    plain = {"mla_scale_q_lora": False, "mla_scale_kv_lora": False}
    attention = build_spec({**find_recipe("longcat_flash").config, **plain}).layers[0].first.attention
    assert (attention.q_factor, attention.kv_factor) == (None, None)


@pytest.mark.matrix
@pytest.mark.parametrize("name", ["kimi_vl", "deepseek_v3"])
def test_an_original_that_mlx_lm_does_not_load(tmp_path: Path, name: str) -> None:
    """The reference is the same model by mlx-lm's names (see the fault register)."""
    recipe = find_recipe(name)
    with Worker(StackConfig(stack="mlx-lm", model="", compile=False)) as builder:
        saved = builder.make(recipe, Form(), tmp_path)
    weights = mx.load(str(saved / "model.safetensors"))
    assert isinstance(weights, dict)
    hub = layouts.glm4_moe_lite(weights, {"num_hidden_layers": 3})
    if name == "kimi_vl":
        hub = layouts.deepseek_v3(weights, {})
    write_model(tmp_path / "original", dict(recipe.config), hub)
    ids = list(range(2, 40))
    assert mx.array_equal(load(saved).logits(ids), load(tmp_path / "original").logits(ids))


@pytest.mark.matrix
def test_whole_heads_are_quantised_as_mlx_lm_does(tmp_path: Path) -> None:
    config = {**find_recipe("youtu_llm").config, "qk_nope_head_dim": 48, "v_head_dim": 64}
    recipe = Recipe(config=config)
    with Worker(StackConfig(stack="mlx-lm", model="", compile=False)) as builder:
        saved = builder.make(recipe, Form(), tmp_path)
    probe = forced(recipe, 40, LOADED_CHUNK)
    cell = Cell(name="youtu_llm", dtype="float32", model=str(saved), probe=probe, steps=0, kv="kv8", chunk=LOADED_CHUNK)
    with Pair("bundled") as pair:
        result = pair.run(cell)
    assert result.status == EQUAL, result.why


def test_a_latent_is_not_quantised() -> None:
    caches = build_spec({**find_recipe("deepseek_v3").config, "qk_rope_head_dim": 64}).caches
    with pytest.raises(errors.InvalidValue, match="attends the latent that it keeps"):
        KVPlan.build(parse_kv("kv8"), caches)
