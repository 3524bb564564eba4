"""Models of real size without tensors, in mlx-lm: their names and shapes, and loading what is drawn.

Imported only in a worker's process.
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import mlx.core as mx
import mlx.nn as nn
from mlx.utils import tree_flatten
from mlx_lm.utils import _get_classes, load_config, load_model

from engine import DRAWN, Draw, draw_weights, read_draw
from oracles.recipe import Form


def write_drawn(model: nn.Module, config: Mapping[str, Any], form: Form, folder: Path) -> None:
    """Write `folder` whole: the names and shapes of a model's parameters, none of which is evaluated."""
    named: dict[str, mx.array] = dict(tree_flatten(model.parameters(), destination={}))
    packed = {name.removesuffix("scales") for name in named if name.endswith(".scales")}
    tensors = {name: (_dtype(name, value, form, packed), tuple(value.shape)) for name, value in named.items()}
    bits = int(config["quantization"]["bits"]) if packed else 0
    draw = Draw(seed=form.seed, bits=bits, tensors=tensors)
    folder.parent.mkdir(parents=True, exist_ok=True)
    staging = Path(tempfile.mkdtemp(prefix=".drawn-", dir=folder.parent))
    (staging / DRAWN).write_text(json.dumps(draw.as_dict()) + "\n", encoding="utf-8")
    (staging / "config.json").write_text(json.dumps(dict(config), indent=2) + "\n", encoding="utf-8")
    try:
        os.rename(staging, folder)
    except OSError:
        shutil.rmtree(staging)
        if not folder.is_dir():
            raise


def _dtype(name: str, value: mx.array, form: Form, packed: set[str]) -> str:
    if name.removesuffix("weight") in packed:
        return "uint32"
    kept = not mx.issubdtype(value.dtype, mx.floating)
    return str(value.dtype).removeprefix("mlx.core.") if kept else form.dtype


def load_folder(folder: Path) -> tuple[nn.Module, dict[str, Any]]:
    """The model and its config, from tensors or drawn."""
    draw = read_draw(folder)
    return load_model(folder, strict=True) if draw is None else load_drawn(folder, draw)


def load_drawn(folder: Path, draw: Draw) -> tuple[nn.Module, dict[str, Any]]:
    """What `mlx_lm.utils.load_model` gives for a folder with these tensors."""
    config = load_config(folder)
    model_class, arguments = _get_classes(config=config)
    model = model_class(arguments.from_dict(config))
    weights = draw_weights(draw)
    if packing := config.get("quantization"):
        nn.quantize(
            model,
            group_size=packing["group_size"],
            bits=packing["bits"],
            mode=packing.get("mode", "affine"),
            class_predicate=lambda path, _module: f"{path}.scales" in weights,
        )
    model.eval()
    model.load_weights(list(weights.items()), strict=True)
    mx.eval(model.parameters())
    return model, config
