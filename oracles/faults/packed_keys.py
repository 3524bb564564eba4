"""mlx-lm: stablelm and afm7 die with a quantised KV cache: both touch its keys as if they were one array."""

from __future__ import annotations

from typing import Any

from oracles.faults.entry import Fault, Shown

AFM7 = {
    "model_type": "afm7",
    "vocab_size": 64,
    "hidden_dim": 64,
    "num_layers": 2,
    "num_kv_reuse_layers": 1,
    "num_heads": 2,
    "num_kv_heads": 1,
}
STABLELM = {
    "model_type": "stablelm",
    "vocab_size": 64,
    "hidden_size": 64,
    "num_attention_heads": 2,
    "num_hidden_layers": 1,
    "num_key_value_heads": 1,
    "intermediate_size": 64,
    "rope_theta": 10000.0,
    "use_qkv_bias": True,
    "partial_rotary_factor": 0.5,
    "layer_norm_eps": 1e-5,
}


def probe(model: str) -> Shown:
    """Run one token over 8-bit caches, as generation with kv_bits does from its start on."""
    import mlx.core as mx
    from mlx_lm.models import afm7, stablelm
    from mlx_lm.models.cache import QuantizedKVCache

    modules: tuple[tuple[Any, dict[str, Any]], ...] = ((afm7, AFM7), (stablelm, STABLELM))
    seen = []
    for module, config in modules:
        built = module.Model(module.ModelArgs.from_dict(config))
        try:
            mx.eval(built(mx.array([[1]]), [QuantizedKVCache(group_size=32, bits=8)]))
        except AttributeError as error:
            seen.append(f"{config['model_type']}: AttributeError: {error}")
    return Shown(len(seen) == len(modules), "; ".join(seen) or "both run")


FAULT = Fault(
    oracle="mlx-lm",
    where="models/stablelm.py Attention (keys.astype), models/afm7.py KVReuseAttention (keys.shape)",
    what="generation with kv_bits raises at the first forward after the conversion",
    ours="both run: stablelm's queries attend in float32, afm7's last layers attend the packed view",
    probe=probe,
)
