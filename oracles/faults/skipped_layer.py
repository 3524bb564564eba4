"""mlx-lm: a gpt_oss with an odd number of layers and no layer_types never runs its last layer."""

from __future__ import annotations

from oracles.faults.entry import Fault, Shown

LAYERS = 3


def probe(model: str) -> Shown:
    """Run three layers without layer_types, and look at the caches that were made and at what the last layer does."""
    import mlx.core as mx
    from mlx_lm.models.gpt_oss import Model, ModelArgs

    sizes = {"hidden_size": 32, "intermediate_size": 32, "head_dim": 16, "vocab_size": 32}
    heads = {"num_attention_heads": 2, "num_key_value_heads": 2, "num_local_experts": 2, "num_experts_per_tok": 1}
    built = Model(ModelArgs.from_dict({"num_hidden_layers": LAYERS, **sizes, **heads}))
    ids = mx.array([[1, 2, 3]])
    before = built(ids)
    last = built.layers[-1].self_attn.o_proj
    last.weight = last.weight + 1
    same = bool(mx.array_equal(before, built(ids)))
    return Shown(
        same, f"{LAYERS} layers, {len(built.make_cache())} caches; changing the last layer changes logits: {not same}"
    )


FAULT = Fault(
    oracle="mlx-lm",
    where="models/gpt_oss.py: layer_types defaults to num_hidden_layers // 2 pairs, and zip stops at the shorter",
    what="with an odd num_hidden_layers and no layer_types the last layer is loaded and never run",
    ours="sliding and full layers alternate over all layers",
    probe=probe,
)
