"""Dense families gpt2 to qwen3: what their configs may ask for, and the mixers that are theirs alone."""

from __future__ import annotations

from typing import Any

import mlx.core as mx
import pytest

from engine import errors
from engine.graph.families import build_spec
from engine.graph.scopes import BlockSparseSpec, regrouped, visible
from oracles.recipe import find_recipe


def built(recipe: str, **changes: Any) -> Any:
    """The spec of a recipe's config with `changes`; a change to ... takes the key away."""
    config = {**find_recipe(recipe).config, **changes}
    return build_spec({key: value for key, value in config.items() if value is not ...})


@pytest.mark.parametrize(
    ("recipe", "changes", "names"),
    [
        ("plamo", {"n_shared_head": 3}, "n_shared_head"),
        ("qwen", {"kv_channels": 32}, "kv_channels"),
        ("phi3", {"rope_scaling": {"type": "yarn", "factor": 2.0}}, "rope_scaling type"),
        ("nemotron", {"rope_scaling": {"type": "llama3", "factor": 2.0}}, "rope_scaling type"),
        ("phi3small", {"blocksparse_block_size": 16}, "blocksparse_block_size"),
        ("nemotron-nas", {"hidden_act": "tanh"}, "hidden_act"),
        ("nemotron-nas", {"block_configs": [{}] * 4}, "block_configs"),
        ("nemotron-nas", {"block_configs": ["none"] * 5}, r"block_configs\[0\]"),
        ("openelm", {"num_kv_heads": [1, 2]}, "num_kv_heads"),
        ("gptj", {"rotary_dim": -2}, "rotary_dim"),
        ("gpt2", {"n_positions": ...}, "n_positions"),
    ],
)
def test_what_a_family_cannot_honour_is_refused_by_name(recipe: str, changes: dict[str, Any], names: str) -> None:
    with pytest.raises(errors.InvalidValue, match=names):
        built(recipe, **changes)


@pytest.mark.parametrize("key", ["type", "rope_type"])
@pytest.mark.parametrize("recipe", ["phi3", "nemotron"])
def test_linear_rope_scaling_needs_a_factor_alone(recipe: str, key: str) -> None:
    """mlx-lm wants long_factor too, or dies on rope_type (register: "linear-rope-refused")."""
    rope = built(recipe, rope_scaling={key: "linear", "factor": 2.0}).layers[0].attention.rope
    assert dict(rope.scaling) == {key: "linear", "factor": 2.0}


def test_a_null_rotary_dim_is_the_whole_head_and_an_absent_one_the_default() -> None:
    assert built("gptj", rotary_dim=None).layers[0].attention.rope.dims == 16
    assert built("gptj", rotary_dim=..., n_embd=512).layers[0].attention.rope.dims == 64


@pytest.mark.parametrize("prefix", ["", "transformer."])
def test_gpt2_names_of_both_releases_become_the_same(prefix: str) -> None:
    """A language model that transformers saved has the prefix (register: "gpt2-prefix-does-not-load")."""
    given = {
        f"{prefix}h.0.attn.c_attn.weight": mx.zeros((2, 6)),
        f"{prefix}h.0.attn.c_attn.bias": mx.zeros((6,)),
        f"{prefix}h.0.attn.bias": mx.zeros((1,)),
        f"{prefix}wte.weight": mx.zeros((5, 2)),
        "lm_head.weight": mx.zeros((5, 2)),
    }
    for rule in built("gpt2").rules:
        given = rule(given)
    assert {name: value.shape for name, value in given.items()} == {
        "model.h.0.attn.c_attn.weight": (6, 2),
        "model.h.0.attn.c_attn.bias": (6,),
        "model.wte.weight": (5, 2),
    }


def test_a_linear_map_in_attentions_place_keeps_a_cache_and_an_absent_mixer_none() -> None:
    spec = built("nemotron-nas")
    assert [len(layer.caches) for layer in spec.layers] == [1, 0, 1, 1, 0]
    assert [layer.norms.pre_attn is None for layer in spec.layers] == [False, True, False, False, True]
    assert [layer.mlp is None for layer in spec.layers] == [False, False, True, False, True]


def test_openelm_widths_round_to_the_divisor_but_never_a_tenth_down() -> None:
    spec = built("openelm", ffn_dim_divisor=64, ffn_multipliers=[0.2, 1.3, 1.1])
    assert [layer.mlp.hidden for layer in spec.layers] == [64, 128, 64]
    assert built("openelm", ffn_multipliers=[1.0, 1.05, 2.4]).layers[2].mlp.hidden == 192


def test_one_query_sees_the_nearest_blocks_and_every_nth_further_back() -> None:
    attention = built("phi3small").layers[1].attention
    spec = BlockSparseSpec(attention=attention, size=2, local=2, stride=3)
    seen = visible(spec, heads=2, length=1, keys=11)  # [H, 1, S], the query in block 5 of 0..5
    blocks = [sorted({key // 2 for key in range(11) if row[0][key]}) for row in seen.tolist()]
    assert blocks == [[2, 4, 5], [1, 4, 5]]


def test_cyclic_heads_meet_the_head_that_is_their_number_modulo() -> None:
    heads = mx.arange(6).reshape(1, 6, 1, 1)
    grouped = regrouped(heads, 3)  # two key/value heads, three queries each
    assert grouped.flatten().tolist() == [0, 2, 4, 1, 3, 5]
    assert mx.array_equal(regrouped(grouped, 2), heads).item()
