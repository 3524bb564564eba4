"""mlx-lm: fields in the config of a qwen3_5 that say what its defaults do not are not read."""

from __future__ import annotations

from oracles.faults.entry import Fault, Shown

TEXT = {
    "vocab_size": 32,
    "hidden_size": 32,
    "intermediate_size": 32,
    "moe_intermediate_size": 32,
    "shared_expert_intermediate_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 2,
    "linear_num_value_heads": 2,
    "linear_num_key_heads": 2,
    "linear_key_head_dim": 16,
    "linear_value_head_dim": 16,
    "num_experts": 2,
    "num_experts_per_tok": 1,
    "rope_theta": 500000.0,
    "layer_types": ["full_attention", "linear_attention"],
    "mlp_only_layers": [0, 1],
}


def probe(model: str) -> Shown:
    """Build a tied model of dense layers, attention first, with a rope of its own, and look at what was built."""
    from mlx_lm.models.qwen3_5 import Model, ModelArgs

    config = {"model_type": "qwen3_5", "tie_word_embeddings": True, "text_config": TEXT}
    built = Model(ModelArgs.from_dict(config)).language_model
    first = built.layers[0]
    seen = {
        "rope_theta": built.args.rope_theta != TEXT["rope_theta"],
        "tie_word_embeddings beside text_config": "lm_head" in built,
        "layer_types": first.is_linear,
        "mlp_only_layers": "switch_mlp" in first.mlp,
    }
    return Shown(
        all(seen.values()), f"asked for in vain: {', '.join(name for name, dropped in seen.items() if dropped)}"
    )


FAULT = Fault(
    oracle="mlx-lm",
    where="models/qwen3_5.py TextModelArgs: rope_theta counts only where rope_parameters is null; layer_types, "
    "mlp_only_layers and decoder_sparse_step are never read (layer_types neither in models/qwen3_next.py), nor is the "
    "outer tie_word_embeddings",
    what="a rope that is not nested turns at 100000, delta nets come first, all layers are mixtures, no head is tied",
    ours="all are applied; layer_types that differ from full_attention_interval are refused",
    probe=probe,
)
