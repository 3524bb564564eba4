"""mlx-lm: jamba's mixtures are in other layers than expert_layer_offset says."""

from __future__ import annotations

from oracles.faults.entry import Fault, Shown

PERIOD, OFFSET, LAYERS = 4, 1, 8


def probe(model: str) -> Shown:
    """Build eight layers, and see which have a mixture."""
    from mlx_lm.models.jamba import JambaSparseMoeBlock, Model, ModelArgs

    sizes = {"hidden_size": 32, "intermediate_size": 32, "num_hidden_layers": LAYERS, "vocab_size": 32}
    heads = {"num_attention_heads": 2, "num_key_value_heads": 1, "rms_norm_eps": 1e-6, "max_position_embeddings": 64}
    states = {"mamba_d_conv": 4, "mamba_d_state": 4, "mamba_expand": 2, "num_experts": 2, "num_experts_per_tok": 1}
    places = {"attn_layer_offset": 1, "attn_layer_period": 2}
    experts = {"expert_layer_offset": OFFSET, "expert_layer_period": PERIOD}
    config = {"model_type": "jamba", **sizes, **heads, **states, **places, **experts}
    layers = Model(ModelArgs.from_dict(config)).layers
    found = [i for i, layer in enumerate(layers) if isinstance(layer.feed_forward, JambaSparseMoeBlock)]
    meant = [i for i in range(LAYERS) if i % PERIOD == OFFSET]
    return Shown(found != meant, f"period {PERIOD}, offset {OFFSET}: mixtures in layers {found}; the model has {meant}")


FAULT = Fault(
    oracle="mlx-lm",
    where="models/jamba.py JambaDecoderLayer: (layer_idx + expert_layer_offset) % expert_layer_period == 0",
    what="unless twice the offset is a multiple of the period, a checkpoint's mixtures and MLPs do not fit the layers, "
    "and it does not load",
    ours="layer i has a mixture where i % expert_layer_period == expert_layer_offset, as in transformers",
    probe=probe,
)
