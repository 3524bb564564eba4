"""Tiny mixture-of-experts models with full attention: Klear to olmoe of mlx-lm's modules."""

from __future__ import annotations

from typing import Any

from oracles.recipe import Recipe

_LAYOUTS = "oracles.layouts.moe1:"
_BASE: dict[str, Any] = {
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 256,
    "rms_norm_eps": 1e-5,
    "rope_theta": 10000.0,
    "vocab_size": 101,
    "num_experts_per_tok": 2,
}
_YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32}
_LLAMA3 = {"rope_type": "llama3", "factor": 8.0, "original_max_position_embeddings": 32}
_LINEAR = {"type": "linear", "factor": 2.0}


def _recipe(layout: str, model_type: str, base: dict[str, Any], changes: dict[str, Any], **fields: Any) -> Recipe:
    config = {"model_type": model_type, **_BASE, **base, **changes}
    return Recipe(config=config, hub=_LAYOUTS + layout, **fields)


def _klear(**changes: Any) -> Recipe:
    base = {
        "attention_bias": False,
        "mlp_only_layers": [],
        "num_experts": 8,
        "decoder_sparse_step": 1,
        "n_shared_experts": 1,
        "moe_intermediate_size": 64,
        "norm_topk_prob": True,
    }
    return _recipe("klear", "Klear", base, changes)


def _bailing(**changes: Any) -> Recipe:
    base = {
        "moe_intermediate_size": 64,
        "num_experts": 8,
        "num_shared_experts": 1,
        "norm_topk_prob": True,
        "first_k_dense_replace": 1,
        "tie_word_embeddings": False,
    }
    quants = {"quants": ()} if changes.get("norm_head") else {}
    return _recipe("bailing", "bailing_moe", base, changes, **quants)


def _dbrx(**attention: Any) -> Recipe:
    config = {
        "model_type": "dbrx",
        "vocab_size": 101,
        "d_model": 64,
        "n_layers": 2,
        "n_heads": 4,
        "max_seq_len": 256,
        "attn_config": {"kv_n_heads": 2, "clip_qkv": 1.5, "rope_theta": 10000.0, **attention},
        "ffn_config": {"ffn_hidden_size": 64, "moe_num_experts": 4, "moe_top_k": 2, "moe_normalize_expert_weights": 1},
    }
    return Recipe(config=config, hub=_LAYOUTS + "dbrx")


def _deepseek(**changes: Any) -> Recipe:
    base = {"moe_intermediate_size": 64, "n_shared_experts": 2, "n_routed_experts": 8, "first_k_dense_replace": 1}
    return _recipe("switch_mlp", "deepseek", base, changes)


def _dots1(**changes: Any) -> Recipe:
    base = {
        "first_k_dense_replace": 1,
        "moe_intermediate_size": 64,
        "n_routed_experts": 8,
        "n_shared_experts": 1,
        "norm_topk_prob": True,
        "routed_scaling_factor": 2.5,
        "tie_word_embeddings": False,
    }
    return _recipe("dots1", "dots1", base, changes)


def _ernie(hub: bool = True, **changes: Any) -> Recipe:
    base = {
        "use_bias": False,
        "tie_word_embeddings": False,
        "moe_num_experts": 8,
        "moe_layer_start_index": 1,
        "moe_intermediate_size": 64,
        "moe_k": 2,
        "moe_num_shared_experts": 1,
    }
    if hub:
        return _recipe("ernie", "ernie4_5_moe", base, changes)
    return Recipe(config={"model_type": "ernie4_5_moe", **_BASE, **base, **changes})


def _glm(**changes: Any) -> Recipe:
    base = {
        "moe_intermediate_size": 64,
        "norm_topk_prob": True,
        "n_group": 1,
        "head_dim": 32,
        "topk_group": 1,
        "n_shared_experts": 1,
        "n_routed_experts": 8,
        "routed_scaling_factor": 1.5,
        "first_k_dense_replace": 1,
        "rope_scaling": None,
        "use_qk_norm": True,
        "tie_word_embeddings": False,
        "attention_bias": True,
        "partial_rotary_factor": 0.5,
    }
    return _recipe("glm", "glm4_moe", base, changes)


def _granite(**changes: Any) -> Recipe:
    base = {
        "intermediate_size": 64,
        "logits_scaling": 1.25,
        "attention_multiplier": 0.2,
        "embedding_multiplier": 3.0,
        "residual_multiplier": 0.6,
        "attention_bias": False,
        "num_local_experts": 8,
        "tie_word_embeddings": True,
    }
    return _recipe("granite", "granitemoe", base, changes)


def _hunyuan(layout: str = "switch_mlp", **changes: Any) -> Recipe:
    base = {
        "intermediate_size": 64,
        "num_hidden_layers": 4,
        "attention_bias": False,
        "moe_topk": 2,
        "num_experts": 4,
        "num_shared_expert": 1,
        "use_mixed_mlp_moe": True,
        "use_qk_norm": True,
        "use_cla": True,
        "cla_share_factor": 2,
        "rope_scaling": {"type": "dynamic", "alpha": 100.0, "factor": 1.0},
        "tie_word_embeddings": True,
    }
    return _recipe(layout, "hunyuan", base, changes)


def _minimax(model_type: str = "minimax", **changes: Any) -> Recipe:
    base = {
        "intermediate_size": 64,
        "num_local_experts": 8,
        "shared_intermediate_size": 0,
        "head_dim": 32,
        "rotary_dim": 16,
    }
    return _recipe("minimax", model_type, base, changes)


def _mixtral(spread: dict[str, tuple[float, float]] | None = None, **changes: Any) -> Recipe:
    base = {"intermediate_size": 64, "num_local_experts": 8, "rope_theta": 1e6}
    return _recipe("mixtral", "mixtral", base, changes, spread=spread or {})


def _olmoe(**changes: Any) -> Recipe:
    base = {"intermediate_size": 64, "num_experts": 8, "tie_word_embeddings": False}
    return _recipe("switch_mlp", "olmoe", base, changes)


RECIPES: dict[str, Recipe] = {
    "Klear": _klear(),
    # A dense layer by the list, one by the step; biases; scores as they are.
    "Klear-dense-layers": _klear(
        num_hidden_layers=4,
        mlp_only_layers=[1],
        decoder_sparse_step=2,
        attention_bias=True,
        norm_topk_prob=False,
        n_shared_experts=2,
    ),
    "bailing_moe": _bailing(),
    "bailing_moe-grouped": _bailing(
        score_function="sigmoid",
        moe_router_enable_expert_bias=True,
        n_group=4,
        topk_group=2,
        routed_scaling_factor=2.5,
        use_qk_norm=True,
        partial_rotary_factor=0.5,
        rope_scaling=_YARN,
        moe_shared_expert_intermediate_size=96,
    ),
    "bailing_moe-tied-noshared": _bailing(
        tie_word_embeddings=True, num_shared_experts=0, rotary_dim=8, use_qkv_bias=True, norm_topk_prob=False
    ),
    # Stacked biases of experts: `sanitize` knows no key for single ones, so there is no other layout.
    "bailing_moe-bias": Recipe(
        config={**_bailing().config, "use_bias": True, "moe_router_enable_shared_expert": False}
    ),
    "bailing_moe-normhead": _bailing(norm_head=True, rope_scaling=_LINEAR),
    "dbrx": _dbrx(),
    "dbrx-clip": _dbrx(clip_qkv=0.3, kv_n_heads=4),
    "deepseek": _deepseek(),
    "deepseek-sparse": _deepseek(
        num_hidden_layers=4,
        first_k_dense_replace=0,
        moe_layer_freq=2,
        n_shared_experts=None,
        attention_bias=True,
        rope_scaling=_LINEAR,
    ),
    "deepseek-dense": Recipe(
        config={"model_type": "deepseek", **{k: v for k, v in _BASE.items() if k != "num_experts_per_tok"}}
    ),
    "dots1": _dots1(),
    "dots1-grouped-tied": _dots1(
        n_group=4,
        topk_group=2,
        mlp_bias=True,
        head_dim=32,
        tie_word_embeddings=True,
        norm_topk_prob=False,
        rope_scaling=_LLAMA3,
    ),
    "ernie4_5_moe": _ernie(),
    "ernie4_5_moe-sigmoid": _ernie(
        moe_gate_act="sigmoid",
        num_hidden_layers=5,
        moe_layer_start_index=[1, 2],
        moe_layer_end_index=[2, 3],
        moe_layer_interval=2,
        moe_num_shared_experts=0,
        head_dim=32,
    ),
    "ernie4_5_moe-bias-tied": _ernie(
        hub=False, use_bias=True, tie_word_embeddings=True, moe_intermediate_size=0, intermediate_size=64
    ),
    "glm4_moe": _glm(),
    "glm4_moe-grouped": _glm(
        n_group=4, topk_group=2, use_qk_norm=False, attention_bias=False, norm_topk_prob=False, n_shared_experts=None
    ),
    "glm4_moe-all-groups": _glm(n_group=2, topk_group=2, num_experts_per_tok=1, partial_rotary_factor=1.0),
    "granitemoe": _granite(),
    "granitemoe-untied-bias": _granite(tie_word_embeddings=False, attention_bias=True, rope_scaling=_LINEAR),
    "hunyuan": _hunyuan(),
    "hunyuan-by-layer": _hunyuan(
        use_cla=False,
        moe_topk=[1, 2, 3, 2],
        num_shared_expert=[1, 2, 1, 1],
        moe_intermediate_size=[64, 64, 128, 64],
        use_qk_norm=False,
        attention_bias=True,
    ),
    "hunyuan-noshared": _hunyuan(use_mixed_mlp_moe=False, cla_share_factor=4),
    "hunyuan-dense": _hunyuan("hunyuan_fused", num_experts=1, use_cla=False),
    "minimax": _minimax(),
    "minimax-m2-tied": _minimax("minimax_m2", tie_word_embeddings=True, use_qk_norm=False),
    "mixtral": _mixtral(),
    "mixtral-tied-traditional": _mixtral(tie_word_embeddings=True, rope_traditional=True),
    # Routers without weights: every expert's score is the same, and the choice is argpartition's own.
    "mixtral-ties": _mixtral({r"block_sparse_moe\.gate\.weight": (0.0, 0.0)}),
    "olmoe": _olmoe(),
    "olmoe-tied-bias": Recipe(
        config={
            **_olmoe().config,
            "tie_word_embeddings": True,
            "attention_bias": True,
            "mlp_bias": True,
            "norm_topk_prob": True,
            "head_dim": 32,
            "rope_traditional": True,
            "rope_scaling": {"type": "dynamic", "factor": 2.0},
            "max_position_embeddings": 24,
        }
    ),
}
