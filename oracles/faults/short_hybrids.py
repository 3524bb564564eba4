"""mlx-lm: a qwen3_next or qwen3_5 with fewer layers than full_attention_interval raises on every prompt."""

from __future__ import annotations

from oracles.faults.entry import Fault, Shown
from oracles.faults.qwen3_5_fields import TEXT


def probe(model: str) -> Shown:
    """Ask a model of two delta nets, three before an attention layer, for logits."""
    import mlx.core as mx
    from mlx_lm.models.qwen3_5 import Model, ModelArgs

    text = {**TEXT, "num_experts": 0, "full_attention_interval": 4}
    built = Model(ModelArgs.from_dict({"model_type": "qwen3_5", "text_config": text}))
    try:
        mx.eval(built(mx.array([[1, 2]]), cache=built.make_cache()))
    except IndexError as error:
        return Shown(True, f"two layers, attention in every fourth: IndexError: {error}")
    return Shown(False, "two layers, attention in every fourth: logits")


FAULT = Fault(
    oracle="mlx-lm",
    where="models/qwen3_next.py, qwen3_5.py: the mask is made from the cache of layer full_attention_interval - 1",
    what="a model whose layers are all delta nets loads and then dies on every prompt",
    ours="it runs; no mask is made before a layer asks for one",
    probe=probe,
)
