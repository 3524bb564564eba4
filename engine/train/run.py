"""Training by config.json: a model, an adapter on one, a head on one; and writing what came of it."""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np

from engine.artifacts.checkpoint import read_config, read_weights
from engine.artifacts.folder import new_folder, write_model
from engine.errors import InvalidValue
from engine.graph.families import build_spec
from engine.graph.families.common import Config
from engine.graph.spec import ArchSpec
from engine.train.loop import Batch, Report, Trained, Training, fit
from engine.train.lora import Lora, adapter_objective, draw_adapter
from engine.train.loss import next_token
from engine.train.mtp import draw_mtp, mtp_losses, mtp_objective
from engine.train.parameters import Parameters, draw_parameters


def spec_of(config: Mapping[str, Any]) -> ArchSpec:
    """The graph of a config. Raises what the family raises."""
    return build_spec(Config(config))


def read_parameters(folder: Path) -> tuple[dict[str, Any], Parameters]:
    """config.json and the float32 parameters of a dense model folder, by the names of the graph."""
    config = read_config(folder)
    arrays = read_weights(folder)
    for rule in spec_of(config).rules:
        arrays = rule(arrays)
    return config, {name: value.astype(mx.float32) for name, value in arrays.items()}


def train_model(
    config: Mapping[str, Any],
    batch: Batch,
    how: Training,
    *,
    start: Mapping[str, mx.array] | None = None,
    checkpoint: Path | None = None,
    report: Report | None = None,
) -> Trained:
    """Train the model of a config from its seed, or from the parameters `start`."""
    spec = spec_of(config)
    begin = draw_parameters(spec, how.seed) if start is None else dict(start)
    return fit(next_token(spec), begin, batch, how, checkpoint=checkpoint, report=report)


def train_adapter(
    base: Path, lora: Lora, batch: Batch, how: Training, *, checkpoint: Path | None = None, report: Report | None = None
) -> Trained:
    """Train an adapter on the model in `base`; `Trained.parameters` are the adapter's."""
    config, parameters = read_parameters(base)
    objective = adapter_objective(spec_of(config), parameters, lora)
    begin = draw_adapter(parameters, lora, how.seed)
    return fit(objective, begin, batch, how, checkpoint=checkpoint, report=report)


def train_mtp(
    base: Path, batch: Batch, how: Training, *, checkpoint: Path | None = None, report: Report | None = None
) -> Trained:
    """Train a head that predicts one token more on the model in `base`; `Trained.parameters` are the head's."""
    config, parameters = read_parameters(base)
    spec = spec_of(config)
    objective = mtp_objective(spec, parameters)
    return fit(objective, draw_mtp(spec, how.seed), batch, how, checkpoint=checkpoint, report=report)


def save_model(
    target: Path, config: Mapping[str, Any], parameters: Mapping[str, mx.array], files: Sequence[Path] = ()
) -> None:
    """Write a model folder in bfloat16, with copies of `files` beside it; `InvalidValue` where it exists."""
    with new_folder(target) as folder:
        arrays = {name: value.astype(mx.bfloat16) for name, value in parameters.items()}
        write_model(folder, arrays, {**config, "torch_dtype": "bfloat16"})
        for path in files:
            shutil.copyfile(path, folder / path.name)


def save_mtp(target: Path, parameters: Mapping[str, mx.array]) -> None:
    """Write mtp.safetensors, in bfloat16; `InvalidValue` where the folder exists."""
    with new_folder(target) as folder:
        arrays = {name: value.astype(mx.bfloat16) for name, value in parameters.items()}
        mx.save_safetensors(str(folder / "mtp.safetensors"), arrays, metadata={"format": "mlx"})


def score_mtp(base: Path, head: Path, rows: Sequence[Sequence[int]]) -> tuple[float, float]:
    """Of the head in the folder `head` on the model in `base`: the share of tokens that it guesses, from the third of a
    row on, and its mean loss in nats. Rows of fewer than three tokens only are `InvalidValue`."""
    rows = [row for row in rows if len(row) > 2]
    if not rows:
        raise InvalidValue("rows", 0, "at least one of three tokens or more")
    config, parameters = read_parameters(base)
    stored = mx.load(str(head / "mtp.safetensors"))
    assert isinstance(stored, dict)
    made = {name: value.astype(mx.float32) for name, value in stored.items()}
    right = nats = count = 0.0
    for row in rows:
        ids = mx.array([row])
        logits, losses = mtp_losses(spec_of(config), parameters, made, ids)
        right += np.asarray(mx.argmax(logits, axis=-1) == ids[:, 2:]).sum()
        nats += np.asarray(losses, np.float64).sum()
        count += losses.size
    return float(right / count), float(nats / count)
