"""Low-rank adapters: y = x W^T + scale (x A) B beside frozen weights, trained and stored as mlx-lm stores them.

Letters: I input features, O output features, R rank.
"""

from __future__ import annotations

import json
import shutil
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import mlx.core as mx

from engine.artifacts.checkpoint import read_config, read_weights
from engine.artifacts.folder import new_folder, write_model
from engine.graph.spec import ArchSpec
from engine.train.loss import Objective, next_token
from engine.train.parameters import Parameters


@dataclass(frozen=True, kw_only=True)
class Lora:
    """rank and scale; keys: the linear maps of a layer that get one, by their path in it."""

    rank: int
    scale: float
    keys: tuple[str, ...]


def adapted_maps(parameters: Mapping[str, mx.array], lora: Lora) -> list[str]:
    """The paths of the maps that get an adapter, in the parameters' order."""
    ends = tuple(f".{key}.weight" for key in lora.keys)
    return [name.removesuffix(".weight") for name in parameters if name.endswith(ends)]


def draw_adapter(parameters: Mapping[str, mx.array], lora: Lora, seed: int) -> Parameters:
    """Where training begins: A [I, R] drawn, B [R, O] zero, so that nothing changes yet."""
    drawn: Parameters = {}
    for path in adapted_maps(parameters, lora):
        out_dim, in_dim = parameters[f"{path}.weight"].shape
        random = mx.random.key(seed ^ zlib.crc32(path.encode()))
        bound = in_dim**-0.5
        drawn[f"{path}.lora_a"] = mx.random.uniform(-bound, bound, (in_dim, lora.rank), key=random)
        drawn[f"{path}.lora_b"] = mx.zeros((lora.rank, out_dim))
    return drawn


def merged(base: Mapping[str, mx.array], adapter: Mapping[str, mx.array], scale: float) -> Parameters:
    """The weights that do the same without an adapter: W + scale (A B)^T."""
    made = dict(base)
    for name, first in adapter.items():
        if name.endswith(".lora_a"):
            path = name.removesuffix(".lora_a")
            product = (scale * (first @ adapter[f"{path}.lora_b"])).T
            made[f"{path}.weight"] = base[f"{path}.weight"] + product
    return made


def adapter_objective(spec: ArchSpec, base: Mapping[str, mx.array], lora: Lora) -> Objective:
    """The objective of the adapter's parameters; the base's stay as they are."""
    whole = next_token(spec)

    def objective(adapter: Parameters, rows: mx.array, weights: mx.array) -> mx.array:
        return whole(merged(base, adapter, lora.scale), rows, weights)

    return objective


def save_adapter(target: Path, adapter: Mapping[str, mx.array], lora: Lora, layers: int) -> None:
    """Write adapters.safetensors and adapter_config.json; `InvalidValue` where `target` exists."""
    with new_folder(target) as folder:
        arrays = {name: value.astype(mx.bfloat16) for name, value in adapter.items()}
        mx.save_safetensors(str(folder / "adapters.safetensors"), arrays, metadata={"format": "mlx"})
        config = {
            "fine_tune_type": "lora",
            "num_layers": layers,
            "lora_parameters": {"rank": lora.rank, "scale": lora.scale, "dropout": 0.0, "keys": list(lora.keys)},
        }
        (folder / "adapter_config.json").write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")


def merge_adapter(base: Path, adapter: Path, target: Path) -> Path:
    """Write `target`, a model folder in bfloat16 that does what the model in `base` does with the adapter in `adapter`,
    the base's other files copied; returns `target`. Raises `InvalidValue` where it exists."""
    config, weights = read_config(base), read_weights(base)
    found = json.loads((adapter / "adapter_config.json").read_text(encoding="utf-8"))["lora_parameters"]
    parts = mx.load(str(adapter / "adapters.safetensors"))
    assert isinstance(parts, dict)
    whole = {name: value.astype(mx.float32) for name, value in (weights | parts).items()}
    made = merged({name: whole[name] for name in weights}, {name: whole[name] for name in parts}, found["scale"])
    with new_folder(target) as folder:
        for path in sorted(base.iterdir()):
            if path.is_file() and path.name != "config.json" and ".safetensors" not in path.name:
                shutil.copyfile(path, folder / path.name)
        write_model(folder, {name: value.astype(mx.bfloat16) for name, value in made.items()}, config)
    return target
