"""Making a model of the zoo again, by its recipe."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from engine import (
    Lora,
    QuantPlan,
    Training,
    errors,
    quantize_folder,
    read_parameters,
    save_adapter,
    save_model,
    save_mtp,
    train_adapter,
    train_model,
    train_mtp,
)
from lab.zoo.batches import Focused, Mixed, Repeats, TrainingData, Widened, Windows
from lab.zoo.recipe import FIRST_WARM_UP, LATER_WARM_UP, Recipe, Stage

Make = Callable[[TrainingData, int, int], Callable[[int], tuple[Any, Any]]]
BATCHES: dict[str, Make] = {"mixed": Mixed, "focused": Focused, "widened": Widened, "repeats": Repeats}
Report = Callable[[int, int | None, float], None]


def make(recipe: Recipe, bases: Path, data: TrainingData | None, target: Path, report: Report) -> None:
    """Write the folder `target`. `bases`: the folder of the models that others are made of; a quantised version needs
    no data. Raises `InvalidValue` where the target exists or data is missing."""
    if recipe.kind == "quantized":
        quantize_folder(_base(recipe, bases), target, _plan(recipe))
        return
    if data is None:
        raise errors.InvalidValue("data", None, f"what {recipe.name} is trained on")
    files = sorted((bases / "tokenizer").iterdir())
    if recipe.kind == "model":
        _make_model(recipe, data, target, files, report)
    elif recipe.kind == "adapter":
        lora = Lora(**{**recipe.lora, "keys": tuple(recipe.lora["keys"])})
        stage = recipe.stages[0]
        done = train_adapter(_base(recipe, bases), lora, _batch(stage, data), _how(stage, LATER_WARM_UP), report=report)
        layers = read_parameters(_base(recipe, bases))[0]["num_hidden_layers"]
        save_adapter(target, done.parameters, lora, layers)
    else:
        stage = recipe.stages[0]
        done = train_mtp(_base(recipe, bases), _batch(stage, data), _how(stage, LATER_WARM_UP), report=report)
        save_mtp(target, done.parameters)


def _make_model(recipe: Recipe, data: TrainingData, target: Path, files: list[Path], report: Report) -> None:
    """Stage by stage, each from what the one before stored in bfloat16."""
    with tempfile.TemporaryDirectory() as scratch:
        start: dict[str, Any] | None = None
        for number, stage in enumerate(recipe.stages):
            how = _how(stage, LATER_WARM_UP if number else FIRST_WARM_UP)
            done = train_model(recipe.config, _batch(stage, data), how, start=start, report=report)
            last = number == len(recipe.stages) - 1
            folder = target if last else Path(scratch) / str(number)
            save_model(folder, recipe.config, done.parameters, files if last else ())
            start = read_parameters(folder)[1]


def _plan(recipe: Recipe) -> QuantPlan:
    return QuantPlan(**{**recipe.quantization, "eight": tuple(recipe.quantization.get("eight", ()))})


def _base(recipe: Recipe, bases: Path) -> Path:
    assert recipe.base is not None
    return bases / recipe.base


def _batch(stage: Stage, data: TrainingData) -> Callable[[int], tuple[Any, Any]]:
    kind = BATCHES.get(stage.data)
    if kind is None:
        return Windows(data, stage.data, stage.rows, stage.seed)
    return kind(data, stage.rows, stage.seed)


def _how(stage: Stage, warm_up: int) -> Training:
    seconds = stage.seconds if stage.steps is None else None
    return Training(rate=stage.rate, seed=stage.seed, steps=stage.steps, seconds=seconds, warm_up=warm_up)
