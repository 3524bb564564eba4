"""mlx-lm: rope_scaling in the config of a mixtral, glm4_moe, qwen3_moe and others is not applied."""

from __future__ import annotations

from oracles.faults.entry import Fault, Shown

FACTOR = 4.0


def probe(model: str) -> Shown:
    """Build a mixtral that asks for linear scaling, and look at the scale it rotates with."""
    from mlx_lm.models.mixtral import Model, ModelArgs

    config = {
        "model_type": "mixtral",
        "vocab_size": 32,
        "hidden_size": 32,
        "intermediate_size": 32,
        "num_hidden_layers": 1,
        "num_attention_heads": 2,
        "num_key_value_heads": 2,
        "num_local_experts": 2,
        "rope_scaling": {"type": "linear", "factor": FACTOR},
    }
    scale = Model(ModelArgs.from_dict(config)).layers[0].self_attn.rope.scale
    return Shown(scale != 1 / FACTOR, f"rope_scaling linear, factor {FACTOR:g}: positions are scaled by {scale:g}")


FAULT = Fault(
    oracle="mlx-lm",
    where="models/mixtral.py, glm4_moe.py, minimax.py, qwen2_moe.py, qwen3_moe.py, olmo_hybrid.py, lfm2.py, "
    "lfm2_moe.py, recurrent_gemma.py, baichuan_m1.py: a rope without the config's scaling (deepseek.py: only linear; "
    "mellum.py: all but linear; exaone_moe.py: not under rope_parameters)",
    what="a config that asks for scaled rotary embeddings silently gets plain ones",
    ours="the scaling is applied, or refused by name where its type is unknown",
    probe=probe,
)
