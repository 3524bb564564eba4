"""mlx-lm: hybrids whose layers are all of one kind crash, at once or at the first forward."""

from __future__ import annotations

from typing import Any

from oracles.faults.entry import Fault, Shown

SIZES = {"hidden_size": 64, "intermediate_size": 64, "vocab_size": 32, "num_hidden_layers": 2}
HEADS = {"num_attention_heads": 2, "num_key_value_heads": 1, "max_position_embeddings": 64}
NEMOTRON = {
    "hybrid_override_pattern": "MM",
    "attention_bias": False,
    "mamba_num_heads": 2,
    "mamba_head_dim": 16,
    "mamba_proj_bias": False,
    "ssm_state_size": 16,
    "conv_kernel": 4,
    "n_groups": 1,
    "mlp_bias": False,
    "layer_norm_epsilon": 1e-5,
    "use_bias": False,
    "use_conv_bias": True,
}
JAMBA = {
    "layers_block_type": ["mamba", "mamba"],
    "attn_layer_offset": 1,
    "attn_layer_period": 8,
    "expert_layer_offset": 1,
    "expert_layer_period": 2,
    "mamba_d_conv": 4,
    "mamba_d_state": 4,
    "mamba_expand": 2,
    "num_experts": 1,
    "num_experts_per_tok": 1,
    "rms_norm_eps": 1e-6,
}
# The last of two layers attends, and mlx-lm looks for the mask in the third.
PLAMO2 = {"mamba_step": 4, "hidden_size_per_head": 16, "mamba_num_heads": 2, "mamba_d_state": 16}


def probe(model: str) -> Shown:
    """Build each and run two tokens."""
    import mlx.core as mx
    from mlx_lm.models import jamba, nemotron_h, plamo2

    modules: tuple[tuple[Any, str, dict[str, Any]], ...] = (
        (nemotron_h, "nemotron_h", NEMOTRON),
        (jamba, "jamba", JAMBA),
        (plamo2, "plamo2", PLAMO2),
    )
    seen = []
    for module, name, config in modules:
        try:
            built = module.Model(module.ModelArgs.from_dict({"model_type": name, **SIZES, **HEADS, **config}))
            mx.eval(built(mx.array([[1, 2]]), built.make_cache()))
        except (IndexError, ValueError) as error:
            seen.append(f"{name}: {type(error).__name__}: {error}")
    return Shown(len(seen) == len(modules), "; ".join(seen) or "all run")


FAULT = Fault(
    oracle="mlx-lm",
    where="models/nemotron_h.py, jamba.py: the index of the first attention layer; plamo2.py: fa_idx = mamba_step // 2",
    what="a nemotron_h or jamba of state-space layers only, and a plamo2 of no more than mamba_step // 2 layers, raise",
    ours="they run: masks are made for the layers that attend",
    probe=probe,
)
