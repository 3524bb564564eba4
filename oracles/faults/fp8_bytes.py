"""mlx-lm: a ministral3 checkpoint in fp8 gets the bytes of its weights as their values."""

from __future__ import annotations

import json
import struct
import tempfile
from pathlib import Path

from oracles.faults.entry import Fault, Shown

ONE_E4M3 = 0x38  # 1.0 in float8 e4m3
KEY = "model.layers.0.mlp.up_proj.weight"
CONFIG = {
    "model_type": "ministral3",
    "hidden_size": 32,
    "num_hidden_layers": 1,
    "intermediate_size": 32,
    "num_attention_heads": 2,
    "rms_norm_eps": 1e-5,
    "vocab_size": 32,
    "rope_parameters": {"rope_theta": 1e4, "llama_4_scaling_beta": 0.1, "original_max_position_embeddings": 64},
}


def probe(model: str) -> Shown:
    """Store 1.0 in fp8 with scale 0.5, as the original checkpoints do, and read it through mlx.load and sanitize."""
    import mlx.core as mx
    from mlx_lm.models.ministral3 import Model, ModelArgs

    header = json.dumps({KEY: {"dtype": "F8_E4M3", "shape": [1, 1], "data_offsets": [0, 1]}}).encode()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.safetensors"
        path.write_bytes(struct.pack("<Q", len(header)) + header + bytes([ONE_E4M3]))
        weights = mx.load(str(path))
    assert isinstance(weights, dict)
    weights[f"{KEY}_scale_inv"] = mx.array(0.5)
    read = Model(ModelArgs.from_dict(CONFIG)).sanitize(weights)[KEY].item()
    return Shown(read != 0.5, f"1.0 in fp8 times 0.5 is read as {read}")


FAULT = Fault(
    oracle="mlx-lm",
    where="models/ministral3.py sanitize: weight * scale_inv without mx.from_fp8; mx.load gives fp8 as uint8",
    what="an fp8 checkpoint of ministral3 loads, with weights that have nothing to do with the stored ones",
    ours="the bytes are read as 8-bit floats before the scale is applied",
    probe=probe,
)
