"""mlx-lm: kv_bits kills a model with sliding windows once a ring holds the tokens from which it is to be packed."""

from __future__ import annotations

from oracles.faults.entry import Fault, Shown

GEMMA3 = {
    "model_type": "gemma3_text",
    "hidden_size": 64,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "head_dim": 32,
    "vocab_size": 32,
    "sliding_window": 8,
    "sliding_window_pattern": 2,
}


def probe(model: str) -> Shown:
    """Generate a token with 8-bit keys and values, packed from the start on."""
    import mlx.core as mx
    from mlx_lm.generate import generate_step
    from mlx_lm.models import gemma3_text

    built = gemma3_text.Model(gemma3_text.ModelArgs.from_dict(GEMMA3))
    prompt = mx.array([1, 2, 3])
    try:
        next(generate_step(prompt, built, max_tokens=1, kv_bits=8, kv_group_size=32, quantized_kv_start=0))
    except NotImplementedError as error:
        return Shown(True, f"gemma3_text with a window of 8: NotImplementedError: {error}")
    return Shown(False, "generates")


FAULT = Fault(
    oracle="mlx-lm",
    where="models/cache.py RotatingKVCache.to_quantized",
    what="generation with kv_bits raises where the first ring reaches quantized_kv_start, in the middle of an answer",
    ours="rings are packed, bit for bit as mlx-optiq packs them in its sequential path",
    probe=probe,
)
