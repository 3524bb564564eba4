"""A damaged config.json is a spec or a typed error, whatever field is damaged and however."""

from __future__ import annotations

import contextlib
from typing import Any

import pytest

from engine import errors
from engine.graph.families import build_spec
from oracles.recipe import resolve
from oracles.recipes import GROUPS

CHECKED = ("dense1",)
RECIPES = {name: recipe for group in CHECKED for name, recipe in resolve(GROUPS[group]).items()}
BAD: tuple[Any, ...] = (None, "x", -1, 0, 1.5, True, [], {}, [None], {"type": "none of these"})


@pytest.mark.parametrize("name", sorted(RECIPES))
def test_a_damaged_field_is_a_spec_or_a_typed_error(name: str) -> None:
    config = dict(RECIPES[name].config)
    for key in config:
        for damaged in [{k: v for k, v in config.items() if k != key}, *({**config, key: bad} for bad in BAD)]:
            with contextlib.suppress(errors.FrontierError):
                build_spec(damaged)


@pytest.mark.parametrize("name", sorted(RECIPES))
def test_a_size_of_the_wrong_kind_is_named(name: str) -> None:
    config = RECIPES[name].config
    for key in ("vocab_size", "hidden_size", "rope_theta", "num_attention_heads"):
        with pytest.raises(errors.InvalidValue, match=key):
            build_spec({**config, key: "many"})


def test_gemma2_without_soft_caps_has_none() -> None:
    config = {**RECIPES["gemma2"].config, "attn_logit_softcapping": None, "final_logit_softcapping": None}
    spec = build_spec(config)
    assert (spec.layers[0].attention.softcap, spec.head.softcap) == (None, None)


def test_hunyuan_names_a_missing_alpha() -> None:
    with pytest.raises(errors.InvalidValue, match=r"rope_scaling\.alpha"):
        build_spec({**RECIPES["hunyuan_v1_dense"].config, "rope_scaling": {"type": "dynamic", "factor": 1.0}})
