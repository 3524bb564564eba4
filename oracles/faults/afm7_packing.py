"""mlx-lm: afm7 cannot be quantised, nor a quantised one loaded: its fused layers do not take mlx's mode."""

from __future__ import annotations

from oracles.faults.entry import Fault, Shown

CONFIG = {
    "model_type": "afm7",
    "vocab_size": 64,
    "hidden_dim": 64,
    "num_layers": 2,
    "num_kv_reuse_layers": 1,
    "num_heads": 2,
    "num_kv_heads": 1,
    "hidden_dim_scale_factor": 1.0,
}


def probe(model: str) -> Shown:
    """Quantise a model in memory as `convert` and `load` do."""
    import mlx.nn as nn
    from mlx_lm.models.afm7 import Model, ModelArgs

    built = Model(ModelArgs.from_dict(CONFIG))
    try:
        nn.quantize(built, group_size=64, bits=4)
    except TypeError as error:
        return Shown(True, f"4 bit: TypeError: {error}")
    return Shown(False, "afm7 is quantised")


FAULT = Fault(
    oracle="mlx-lm",
    where="models/afm7.py FusedLinear.to_quantized(group_size, bits): mlx calls it with mode as well",
    what="every conversion of afm7 to a quantised form, and every load of one, dies",
    ours="a quantised afm7 loads, and its fused projection is multiplied as any packed one",
    probe=probe,
)
