"""mlx-lm: a rope base in transformers 5's nested rope_parameters is not read by llama and others; 10000 is used."""

from __future__ import annotations

import json
from pathlib import Path

from oracles.faults.entry import Fault, Shown

THETA = 500000.0


def probe(model: str) -> Shown:
    """Build a llama whose config has its base only in rope_parameters, and look at the base it uses."""
    from mlx_lm.models.llama import Model, ModelArgs

    config = json.loads((Path(model) / "config.json").read_text(encoding="utf-8"))
    del config["rope_theta"]
    config["rope_parameters"] = {"rope_type": "default", "rope_theta": THETA}
    base = Model(ModelArgs.from_dict(config)).layers[0].self_attn.rope.base
    return Shown(base != THETA, f"rope_parameters.rope_theta={THETA:g}: the model rotates with base {base:g}, no error")


FAULT = Fault(
    oracle="mlx-lm",
    where="models/llama.py ModelArgs (also qwen2, olmo2): rope_parameters is no field, so it is dropped",
    what="a config that nests rope_theta under rope_parameters silently gets the default base",
    ours="the nested value is read where the flat one is absent",
    probe=probe,
)
