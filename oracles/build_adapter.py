"""Builds tiny models with mlx-lm's own classes. Imported only in a worker's process."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import mlx.core as mx
import mlx.nn as nn
from mlx.utils import tree_flatten, tree_unflatten
from mlx_lm.utils import MODEL_REMAPPING, _get_classes, quantize_model

from engine import errors
from oracles.drawn_adapter import write_drawn
from oracles.recipe import Form, Recipe, draw, draw_words, kind_of, resolve
from oracles.tiny import write_model

MX_DTYPES = {"float32": mx.float32, "bfloat16": mx.bfloat16, "float16": mx.float16}
# name -> (bits, group size, mode) of mlx_lm.utils.quantize_model
PACKINGS: dict[str, tuple[int, int, str]] = {
    "q4g32": (4, 32, "affine"),
    "q4g64": (4, 64, "affine"),
    "mixed": (4, 64, "affine"),
    "mxfp4": (4, 32, "mxfp4"),
    "mxfp8": (8, 32, "mxfp8"),
    "nvfp4": (4, 16, "nvfp4"),
}
EIGHT_BIT = {"group_size": 32, "bits": 8, "mode": "affine"}
_ATTENTION_OUT = re.compile(r"(o_proj|out_proj|dense|wo|c_proj)")


def build(recipe: Recipe, form: Form, folder: Path) -> dict[str, Any]:
    """Write `folder` whole. The answer: "module" of mlx-lm, and "kinds", the kinds of its parameters before packing
    (none where values are not drawn here).

    Raises `errors.InvalidValue` for a mutation of a kind that is not there and a packing that packs nothing; whatever
    mlx-lm raises passes through.
    """
    config = {**recipe.config, "torch_dtype": form.dtype}
    model_class, arguments = _get_classes(config)
    model = model_class(arguments.from_dict(config))
    module = MODEL_REMAPPING.get(config["model_type"], config["model_type"])
    if form.layout == "drawn":
        config = config if form.quant is None else _pack(model, config, form.quant)
        write_drawn(model, config, form, folder)
        return {"module": module, "kinds": []}
    kinds = _fill(model, recipe, form)
    if form.quant is not None:
        config = _pack(model, config, form.quant)
    weights = {name: value for name, value in _named(model).items() if not _left_out(recipe, name)}
    if form.layout == "hub" and recipe.hub is not None:
        weights = resolve(recipe.hub)(weights, config)
    mx.eval(weights)
    folder.parent.mkdir(parents=True, exist_ok=True)
    write_model(folder, config, weights)
    return {"module": module, "kinds": kinds}


def _fill(model: nn.Module, recipe: Recipe, form: Form) -> list[str]:
    """Draw every floating or packed parameter, cast as mlx-lm's convert does: `cast_predicate` keeps some float32."""
    casts: Callable[[str], bool] = getattr(model, "cast_predicate", lambda name: True)
    filled: list[tuple[str, mx.array]] = []
    kinds: dict[str, None] = {}
    for name, value in _named(model).items():
        words = value.dtype == mx.uint32
        if not words and not mx.issubdtype(value.dtype, mx.floating):
            continue
        if _left_out(recipe, name):
            continue
        kind = kind_of(name)
        kinds[kind] = None
        seed = form.seed + (kind == form.mutate)
        drawn = mx.array(draw_words(name, value.shape, seed) if words else draw(recipe, name, value.shape, seed))
        filled.append((name, drawn.astype(MX_DTYPES[form.dtype]) if casts(name) and not words else drawn))
    if form.mutate is not None and form.mutate not in kinds:
        raise errors.InvalidValue("mutate", form.mutate, kinds)
    model.update(tree_unflatten(filled))
    return list(kinds)


def _left_out(recipe: Recipe, name: str) -> bool:
    return recipe.without is not None and re.search(recipe.without, name) is not None


def _named(model: nn.Module) -> dict[str, mx.array]:
    """Every parameter by mlx-lm's name."""
    return dict(tree_flatten(model.parameters(), destination={}))


def _pack(model: nn.Module, config: dict[str, Any], quant: str) -> dict[str, Any]:
    bits, group, mode = PACKINGS[quant]
    predicate = _mixed_plan(model) if quant == "mixed" else None
    _, packed = quantize_model(model, config, group, bits, mode=mode, quant_predicate=predicate)
    if not any(name.endswith(".scales") for name in _named(model)):
        raise errors.InvalidValue("quant", quant, f"a packing that fits: no last dimension is divisible by {group}")
    return dict(packed)


def _mixed_plan(model: nn.Module) -> Callable[[str, nn.Module], bool | dict[str, Any]]:
    """8 bit in layer 1, its values' projection in layer 0 and the head; the last attention output stays dense.

    What the module's own `quant_predicate` decides stays.
    """
    own: Callable[[str, nn.Module], bool | Mapping[str, Any]] = getattr(model, "quant_predicate", None) or (
        lambda path, module: True
    )
    indices = [_layer(path) for path, _ in model.named_modules()]
    last = max(index for index in indices if index is not None)

    def plan(path: str, module: nn.Module) -> bool | dict[str, Any]:
        decided = own(path, module)
        if decided is not True:
            return dict(decided) if isinstance(decided, Mapping) else bool(decided)
        layer, leaf = _layer(path), path.split(".")[-1]
        if layer == last and _ATTENTION_OUT.fullmatch(leaf) and "mlp" not in path:
            return False
        eight = layer == 1 or (layer == 0 and leaf == "v_proj") or leaf == "lm_head"
        return dict(EIGHT_BIT) if eight else True

    return plan


def _layer(path: str) -> int | None:
    found = re.search(r"\.(\d+)(\.|$)", path)
    return None if found is None else int(found[1])
