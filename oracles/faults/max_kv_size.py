"""mlx-lm: a size limit of the KV cache is accepted and ignored by every model that builds its own caches."""

from __future__ import annotations

from pathlib import Path

from oracles.faults.entry import Fault, Shown

LIMIT, PROMPT = 16, 40


def probe(model: str) -> Shown:
    """Ask for 16 tokens of cache, feed 40, count what is kept."""
    import mlx.core as mx
    from mlx_lm.models.cache import make_prompt_cache
    from mlx_lm.utils import load_model

    loaded, _ = load_model(Path(model))
    caches = make_prompt_cache(loaded, max_kv_size=LIMIT)
    mx.eval(loaded(mx.arange(2, 2 + PROMPT)[None], cache=caches))
    kept = max(int(cache.keys_and_values()[0].shape[2]) for cache in caches)
    kind = type(caches[0]).__name__
    return Shown(kept > LIMIT, f"max_kv_size={LIMIT}: {kind} holds {kept} of {PROMPT} tokens, no error")


FAULT = Fault(
    oracle="mlx-lm",
    where="models/cache.py make_prompt_cache: a model with make_cache (llama, mistral, ...) never sees max_kv_size",
    what="max_kv_size is accepted and ignored",
    ours="no such setting: an unknown field is refused by name",
    probe=probe,
)
