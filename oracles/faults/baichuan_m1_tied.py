"""mlx-lm: a baichuan_m1 with tie_word_embeddings raises on every prompt."""

from __future__ import annotations

from oracles.faults.entry import Fault, Shown

CONFIG = {
    "vocab_size": 32,
    "hidden_size": 32,
    "intermediate_size": 32,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "rope_theta": 10000.0,
    "sliding_window": 8,
    "sliding_window_layers": [],
    "conv_window": 2,
    "rms_norm_eps": 1e-5,
    "tie_word_embeddings": True,
}


def probe(model: str) -> Shown:
    """Ask a tied model for logits."""
    import mlx.core as mx
    from mlx_lm.models.baichuan_m1 import Model, ModelArgs

    built = Model(ModelArgs.from_dict(CONFIG))
    try:
        mx.eval(built(mx.array([[1, 2]]), built.make_cache()))
    except AttributeError as error:
        return Shown(True, f"tied: AttributeError: {error}")
    return Shown(False, "tied: logits")


FAULT = Fault(
    oracle="mlx-lm",
    where="models/baichuan_m1.py Model.__call__: self.lm_head, which a tied model does not have",
    what="a tied baichuan_m1 loads and then dies on every prompt",
    ours="its head is the embedding, as stored",
    probe=probe,
)
