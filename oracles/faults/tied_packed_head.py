"""mlx-lm: a tied head of llama4_text, minicpm or seed_oss multiplies by the packed words of a quantised embedding."""

from __future__ import annotations

from oracles.faults.entry import Fault, Shown

CONFIG = {
    "model_type": "llama4_text",
    "hidden_size": 64,
    "intermediate_size": 64,
    "intermediate_size_mlp": 64,
    "num_attention_heads": 2,
    "num_key_value_heads": 2,
    "num_hidden_layers": 1,
    "head_dim": 32,
    "rms_norm_eps": 1e-5,
    "vocab_size": 64,
    "rope_theta": 10000.0,
    "tie_word_embeddings": True,
    "no_rope_layers": [1],
    "use_qk_norm": False,
}


def probe(model: str) -> Shown:
    """Quantise a model in memory as `convert` does, and run one token."""
    import mlx.core as mx
    import mlx.nn as nn
    from mlx_lm.models.llama4_text import Model, ModelArgs

    built = Model(ModelArgs.from_dict(CONFIG))
    nn.quantize(built, group_size=64, bits=4)
    try:
        mx.eval(built(mx.array([[1]])))
    except ValueError as error:
        return Shown(True, f"4 bit, one token: ValueError: {error}")
    return Shown(False, "a quantised model with a tied head runs")


FAULT = Fault(
    oracle="mlx-lm",
    where="models/llama4_text.py, minicpm.py and seed_oss.py Model.__call__: h @ embed_tokens.weight.T",
    what="converting a tied model to any quantisation succeeds, and the result dies at its first forward",
    ours="the packed embedding is multiplied as a packed head",
    probe=probe,
)
