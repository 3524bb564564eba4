"""mlx-lm: the two ropes of a gemma3, nested by layer type as transformers 5 writes them, are dropped for defaults."""

from __future__ import annotations

from oracles.faults.entry import Fault, Shown

ROPES = {
    "full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 500000.0},
    "sliding_attention": {"rope_type": "default", "rope_theta": 20000.0},
}
CONFIG = {
    "model_type": "gemma3_text",
    "hidden_size": 32,
    "intermediate_size": 32,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "head_dim": 16,
    "num_hidden_layers": 2,
    "sliding_window_pattern": 2,
    "vocab_size": 32,
    "rope_parameters": ROPES,
}


def probe(model: str) -> Shown:
    """Build a gemma3_text, and look at the ropes of a sliding and of a global layer."""
    from mlx_lm.models.gemma3_text import Model, ModelArgs

    local, everywhere = (layer.self_attn.rope for layer in Model(ModelArgs.from_dict(CONFIG)).layers)
    seen = f"sliding base {local.base:g}, global base {everywhere.base:g} and scale {everywhere.scale:g}"
    asked = (20000.0, 500000.0, 1 / 8)
    return Shown((local.base, everywhere.base, everywhere.scale) != asked, f"{seen}; asked: 20000, 500000, 0.125")


FAULT = Fault(
    oracle="mlx-lm",
    where="models/gemma3_text.py, gear.py ModelArgs: rope_parameters is no field, so it is dropped",
    what="a gemma3 saved by transformers 5 silently loses its bases and the linear scaling of its global layers",
    ours="the nested values are read where the flat ones are absent",
    probe=probe,
)
