"""mlx-lm: the biases of experts in the original layout are left unstacked, so that such a model does not load."""

from __future__ import annotations

from oracles.faults.entry import Fault, Shown

EXPERTS = 2


def probe(model: str) -> Shown:
    """Give the original keys of an ernie4_5_moe with biases to `sanitize`."""
    import mlx.core as mx
    from mlx_lm.models.ernie4_5_moe import Model, ModelArgs

    config = {
        "model_type": "ernie4_5_moe",
        "hidden_size": 32,
        "intermediate_size": 32,
        "max_position_embeddings": 32,
        "num_attention_heads": 2,
        "num_key_value_heads": 2,
        "num_hidden_layers": 1,
        "rms_norm_eps": 1e-5,
        "vocab_size": 32,
        "rope_theta": 10000.0,
        "use_bias": True,
        "tie_word_embeddings": True,
        "moe_num_experts": EXPERTS,
    }
    keys = [f"model.layers.0.mlp.experts.{e}.up_proj" for e in range(EXPERTS)]
    weights = {f"{k}.weight": mx.zeros((32, 32)) for k in keys} | {f"{k}.bias": mx.zeros((32,)) for k in keys}
    left = sorted(k for k in Model(ModelArgs.from_dict(config)).sanitize(weights) if ".experts." in k)
    return Shown(bool(left), f"use_bias: left over after sanitize: {', '.join(left) or 'nothing'}")


FAULT = Fault(
    oracle="mlx-lm",
    where="models/ernie4_5_moe.py, bailing_moe.py, bailing_moe_linear.py, bailing_hybrid.py sanitize: of experts.<e> "
    "no .bias is stacked",
    what="an original checkpoint with use_bias fails its strict load: the experts' biases are unknown keys",
    ours="biases are stacked like the weights",
    probe=probe,
)
