"""mlx-lm: phi3small's block-sparse layers see later tokens of a prompt: a boolean mask is added to the scores."""

from __future__ import annotations

from typing import cast

from oracles.faults.entry import Fault, Shown

CONFIG = {
    "model_type": "phi3small",
    "hidden_size": 16,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "dense_attention_every_n_layers": 2,
    "ff_intermediate_size": 16,
    "gegelu_limit": 20.0,
    "layer_norm_epsilon": 1e-5,
    "vocab_size": 100352,
}


def probe(model: str) -> Shown:
    """The logits after the first of two tokens, prefilled together, for two choices of the second one."""
    import mlx.core as mx
    from mlx_lm.models.phi3small import Model, ModelArgs

    mx.random.seed(1)
    built = Model(ModelArgs.from_dict(CONFIG))
    after = [built(mx.array([[5, second]]))[0, 0, :1000] for second in (6, 7)]
    moved = cast(float, mx.abs(after[0] - after[1]).max().item())
    return Shown(moved > 0, f"the second token of a prompt changes the first one's logits by {moved:.3g}")


FAULT = Fault(
    oracle="mlx-lm",
    where="models/phi3small.py _block_sparse_attention: scores + mask with a boolean mask; _block_sparse_mask aligns "
    "queries to the end of the last block",
    what="several tokens at once attend the future of their block; one token at a time is as it should be",
    ours="the same bits, as everywhere in plain decoding; with prefill chunks of one token both are causal",
    probe=probe,
)
