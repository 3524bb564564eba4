"""mlx-lm: a bailing_moe with norm_head divides its head again at every load, packed words too."""

from __future__ import annotations

from oracles.faults.entry import Fault, Shown

CONFIG = {
    "model_type": "bailing_moe",
    "hidden_size": 64,
    "intermediate_size": 64,
    "max_position_embeddings": 64,
    "moe_intermediate_size": 64,
    "num_experts": 4,
    "num_shared_experts": 0,
    "norm_topk_prob": True,
    "num_attention_heads": 2,
    "num_experts_per_tok": 2,
    "num_hidden_layers": 1,
    "num_key_value_heads": 2,
    "rms_norm_eps": 1e-5,
    "rope_theta": 10000.0,
    "vocab_size": 64,
    "first_k_dense_replace": 1,
    "norm_head": True,
}


def probe(model: str) -> Shown:
    """Quantise a model in memory, and read its packed head through `sanitize`, as a load does."""
    import mlx.nn as nn
    import numpy as np
    from mlx_lm.models.bailing_moe import Model, ModelArgs

    built = Model(ModelArgs.from_dict(CONFIG))
    nn.quantize(built, group_size=64, bits=4)
    packed = built.lm_head.weight
    loaded = built.sanitize({"lm_head.weight": packed})["lm_head.weight"]
    kept = int((np.array(loaded) == np.array(packed)).sum())
    return Shown(kept < packed.size, f"{kept} of {packed.size} packed words of lm_head are the same after sanitize")


FAULT = Fault(
    oracle="mlx-lm",
    where="models/bailing_moe.py, bailing_moe_linear.py sanitize: norm_head normalises lm_head.weight whatever it is",
    what="a quantised bailing_moe with norm_head loads with its head's packed words divided: the output is noise",
    ours="a packed head was normalised when it was quantised and is left alone",
    probe=probe,
)
