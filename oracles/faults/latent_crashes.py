"""mlx-lm: latent attention without a scaled rope, or without longcat_flash's factors, crashes."""

from __future__ import annotations

from typing import Any

from oracles.faults.entry import Fault, Shown

SILENT: dict[str, dict[str, Any]] = {
    "deepseek_v2": {"rope_scaling": None},
    "minicpm3": {"rope_scaling": None},
    "longcat_flash": {"mla_scale_q_lora": False},
}


def probe(model: str) -> Shown:
    """Build each model and run two tokens."""
    import mlx.core as mx
    from mlx_lm.utils import _get_classes

    from oracles.recipe import find_recipe

    seen = []
    for recipe, changes in SILENT.items():
        config = {**find_recipe(recipe).config, **changes}
        model_class, arguments = _get_classes(config)
        try:
            mx.eval(model_class(arguments.from_dict(config))(mx.array([[1, 2]])))
        except AttributeError as error:
            seen.append(f"{recipe} {changes}: AttributeError: {error}")
    return Shown(len(seen) == len(SILENT), "; ".join(seen) or "all of them run")


FAULT = Fault(
    oracle="mlx-lm",
    where="models/deepseek_v2.py, minicpm3.py: rope_scaling is read without a look at None; longcat_flash.py: "
    "mla_scale_q_lora and mla_scale_kv_lora set no attribute where they are false",
    what="configs that ask for less than the usual checkpoint cannot be run",
    ours="a plain rope, and no factor",
    probe=probe,
)
