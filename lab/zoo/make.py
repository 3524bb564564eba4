"""Making a model of the zoo again, by its recipe."""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from engine import (
    Lora,
    QuantPlan,
    Trained,
    Training,
    errors,
    machine,
    quantize_folder,
    read_parameters,
    save_adapter,
    save_model,
    save_mtp,
    train_adapter,
    train_model,
    train_mtp,
)
from lab.zoo.batches import Drilled, Focused, Mixed, Recited, TrainingData, Widened, Windows
from lab.zoo.recipe import FIRST_WARM_UP, LATER_WARM_UP, Recipe, Stage

Make = Callable[[TrainingData, int, int], Callable[[int], tuple[Any, Any]]]
BATCHES: dict[str, Make] = {
    "mixed": Mixed,
    "focused": Focused,
    "widened": Widened,
    "drilled": Drilled,
    "recited": Recited,
}
Report = Callable[[int, int | None, float], None]
CURVE = "curve.json"


def make(recipe: Recipe, bases: Path, data: TrainingData | None, target: Path, report: Report) -> None:
    """Write the folder `target`, with the curve of what is trained. `bases`: the folder of the models that others are
    made of; a quantised version needs no data. Raises `InvalidValue` where the target exists or data is missing."""
    if recipe.kind == "quantized":
        quantize_folder(_base(recipe, bases), target, _plan(recipe))
        return
    if data is None:
        raise errors.InvalidValue("data", None, f"what {recipe.name} is trained on")
    files = sorted((bases / "tokenizer").iterdir())
    stage = recipe.stages[0]
    if recipe.kind == "model":
        curves = _make_model(recipe, data, target, files, report)
    elif recipe.kind == "adapter":
        lora = Lora(**{**recipe.lora, "keys": tuple(recipe.lora["keys"])})
        train = partial(train_adapter, _base(recipe, bases), lora, _batch(stage, data), report=report)
        done, curve = _run(stage, LATER_WARM_UP, train)
        layers = read_parameters(_base(recipe, bases))[0]["num_hidden_layers"]
        save_adapter(target, done.parameters, lora, layers)
        curves = [curve]
    else:
        done, curve = _run(
            stage, LATER_WARM_UP, partial(train_mtp, _base(recipe, bases), _batch(stage, data), report=report)
        )
        save_mtp(target, done.parameters)
        curves = [curve]
    said = {"name": recipe.name, "machine": machine().key, "data_sha256": data.sha256, "stages": curves}
    (target / CURVE).write_text(json.dumps(said), encoding="utf-8")


def _make_model(
    recipe: Recipe, data: TrainingData, target: Path, files: list[Path], report: Report
) -> list[dict[str, Any]]:
    """Stage by stage, each from what the one before stored in bfloat16; returns their curves."""
    curves = []
    with tempfile.TemporaryDirectory() as scratch:
        start: dict[str, Any] | None = None
        for number, stage in enumerate(recipe.stages):
            train = partial(train_model, recipe.config, _batch(stage, data), start=start, report=report)
            done, curve = _run(stage, LATER_WARM_UP if number else FIRST_WARM_UP, train)
            curves.append(curve)
            last = number == len(recipe.stages) - 1
            folder = target if last else Path(scratch) / str(number)
            save_model(folder, recipe.config, done.parameters, files if last else ())
            start = read_parameters(folder)[1]
    return curves


def _run(stage: Stage, warm_up: int, train: Callable[[Training], Trained]) -> tuple[Trained, dict[str, Any]]:
    """What `train` makes of a stage, and its numbers with the curve: [step, mean loss in nats since the one before]."""
    began = time.monotonic()
    seconds = stage.seconds if stage.steps is None else None
    done = train(Training(rate=stage.rate, seed=stage.seed, steps=stage.steps, seconds=seconds, warm_up=warm_up))
    numbers = {"data": stage.data, "rows": stage.rows, "rate": stage.rate, "seed": stage.seed, "warm_up": warm_up}
    curve = [[step, round(loss, 4)] for step, loss in done.curve]
    took = {"steps": done.steps, "seconds": round(time.monotonic() - began, 1)}
    return done, {**numbers, **took, "curve": curve}


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
