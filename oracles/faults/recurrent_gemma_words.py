"""mlx-lm: rms_norm_eps, rope_theta, conv1d_width and other words of a recurrent_gemma's config are not read."""

from __future__ import annotations

from oracles.faults.entry import Fault, Shown

EPS, BASE, WIDTH = 1e-3, 500.0, 2
CONFIG = {
    "model_type": "recurrent_gemma",
    "attention_bias": True,
    "conv1d_width": WIDTH,
    "hidden_size": 32,
    "intermediate_size": 32,
    "logits_soft_cap": 30.0,
    "num_attention_heads": 2,
    "num_hidden_layers": 2,
    "num_key_value_heads": 1,
    "rms_norm_eps": EPS,
    "rope_theta": BASE,
    "attention_window_size": 8,
    "vocab_size": 32,
    "block_types": ["recurrent", "attention"],
}


def probe(model: str) -> Shown:
    """Build from a config that says something else than mlx-lm's constants, and look at what was built."""
    from mlx_lm.models.recurrent_gemma import Model, ModelArgs

    recurrent, attention = Model(ModelArgs.from_dict(CONFIG)).layers
    eps, base = recurrent.temporal_pre_norm.eps, attention.temporal_block.rope.base
    width, biased = recurrent.temporal_block.conv_1d.weight.shape[1], "bias" in attention.temporal_block.q_proj
    unread = eps != EPS and base != BASE and width != WIDTH and not biased
    return Shown(
        unread,
        f"rms_norm_eps {EPS}: layers have {eps:g}; rope_theta {BASE:g}: {base:g}; conv1d_width {WIDTH}: {width}; "
        f"attention_bias true: {biased}".lower(),
    )


FAULT = Fault(
    oracle="mlx-lm",
    where="models/recurrent_gemma.py: ResidualBlock, LocalAttentionBlock and RecurrentBlock take no such argument",
    what="layers are built with an epsilon of 1e-5, a base of 10000, filters of 4, no biases and lru_width = "
    "hidden_size, whatever the config says",
    ours="all are applied but the layers' epsilon: published checkpoints say 1e-6, and plain decoding keeps mlx-lm's "
    "bits",
    probe=probe,
)
