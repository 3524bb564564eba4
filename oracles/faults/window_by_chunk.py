"""mlx-lm: plamo3's sliding layers see one key more in a prefill chunk than in decoding."""

from __future__ import annotations

from oracles.faults.entry import Fault, Shown

WINDOW, TOKENS = 4, 12
CONFIG = {
    "model_type": "plamo3",
    "hidden_size": 32,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "head_dim": 16,
    "window_size": WINDOW,
    "intermediate_size": 32,
    "vocab_size": 32,
}


def probe(model: str) -> Shown:
    """The same tokens in one forward and one at a time, over fresh caches: where do the logits part by more than
    rounding?"""
    import mlx.core as mx
    from mlx_lm.models.plamo3 import Model, ModelArgs

    mx.random.seed(0)
    built = Model(ModelArgs.from_dict(CONFIG))
    ids = mx.array([[1 + i for i in range(TOKENS)]])
    whole = built(ids, cache=built.make_cache())[0]  # [L, V]
    cache = built.make_cache()
    steps = mx.concatenate([built(ids[:, i : i + 1], cache=cache)[0] for i in range(TOKENS)])
    apart = (mx.abs(whole - steps).max(axis=-1) > 1e-4).tolist()
    assert isinstance(apart, list)
    first = apart.index(True) if True in apart else None
    return Shown(first == WINDOW, f"window_size {WINDOW}: one forward and single steps part from position {first}")


FAULT = Fault(
    oracle="mlx-lm",
    where="models/plamo3.py: the mask allows window_size + 1 keys, RotatingKVCache(max_size=window_size) keeps fewer",
    what="from position window_size on, logits depend on how the prompt was cut into chunks",
    ours="the same bits as mlx-lm at the same chunks, in prefill and in decoding",
    probe=probe,
)
