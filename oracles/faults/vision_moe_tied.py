"""mlx-lm: a qwen3_vl_moe with a tied head does not load."""

from __future__ import annotations

from oracles.faults.entry import Fault, Shown

TEXT = {
    "model_type": "qwen3_vl_moe_text",
    "hidden_size": 32,
    "num_hidden_layers": 1,
    "intermediate_size": 32,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "head_dim": 16,
    "num_experts": 2,
    "num_experts_per_tok": 1,
    "decoder_sparse_step": 1,
    "mlp_only_layers": [],
    "moe_intermediate_size": 32,
    "rms_norm_eps": 1e-5,
    "vocab_size": 32,
    "rope_theta": 1e4,
    "tie_word_embeddings": True,
    "max_position_embeddings": 64,
    "norm_topk_prob": True,
}


def probe(model: str) -> Shown:
    """Give a tied model its own parameters, through the sanitize that every folder goes through."""
    from mlx.utils import tree_flatten
    from mlx_lm.models.qwen3_vl_moe import Model, ModelArgs

    built = Model(ModelArgs.from_dict({"model_type": "qwen3_vl_moe", "text_config": TEXT}))
    try:
        built.sanitize(dict(tree_flatten(built.parameters(), destination={})))
    except KeyError as error:
        return Shown(True, f"its own parameters: KeyError: {error}")
    return Shown(False, "a tied model loads its own parameters")


FAULT = Fault(
    oracle="mlx-lm",
    where="models/qwen3_vl_moe.py sanitize: lm_head is looked up without a look at tie_word_embeddings",
    what="a qwen3_vl_moe with tie_word_embeddings cannot be loaded in either layout",
    ours="a tied text tower needs no head",
    probe=probe,
)
