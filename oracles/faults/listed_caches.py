"""mlx-lm: kv_bits does nothing for a falcon_h1 and a baichuan_m1, and kills a plamo2."""

from __future__ import annotations

from oracles.faults.entry import Fault, Shown

FALCON = {
    "hidden_size": 64,
    "intermediate_size": 64,
    "num_hidden_layers": 1,
    "vocab_size": 32,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "head_dim": 32,
    "mamba_n_heads": 2,
    "mamba_d_head": 16,
    "mamba_d_ssm": 32,
    "mamba_d_state": 16,
}
PLAMO2 = {
    "hidden_size": 64,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "vocab_size": 32,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "hidden_size_per_head": 32,
    "mamba_num_heads": 2,
    "mamba_d_state": 16,
}


def probe(model: str) -> Shown:
    """Quantise both models' caches as generation does, and run a token."""
    import mlx.core as mx
    from mlx_lm.generate import maybe_quantize_kv_cache
    from mlx_lm.models import falcon_h1, plamo2
    from mlx_lm.models.cache import KVCache

    built = falcon_h1.Model(falcon_h1.ModelArgs.from_dict(FALCON))
    caches = built.make_cache()
    mx.eval(built(mx.array([[1, 2]]), caches))
    maybe_quantize_kv_cache(caches, 0, 32, 8)
    kept = isinstance(caches[0][1], KVCache)
    other = plamo2.Model(plamo2.ModelArgs.from_dict(PLAMO2))
    caches, died = other.make_cache(), "runs"
    maybe_quantize_kv_cache(caches, 0, 32, 8)
    try:
        mx.eval(other(mx.array([[1, 2]]), caches))
    except TypeError as error:
        died = f"TypeError: {str(error).splitlines()[0]}"
    return Shown(kept and died != "runs", f"falcon_h1 with 8 bits asked keeps a KVCache: {kept}; plamo2: {died}")


FAULT = Fault(
    oracle="mlx-lm",
    where="generate.py maybe_quantize_kv_cache (a CacheList has no to_quantized); models/plamo2.py Attention "
    "(mx.fast.scaled_dot_product_attention on packed keys)",
    what="a falcon_h1 or baichuan_m1 generates from unquantised keys and values without a word; plamo2 raises at "
    "the first forward",
    ours="all quantise the keys and values of their attention layers",
    probe=probe,
)
