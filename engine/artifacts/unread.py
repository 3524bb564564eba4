"""What of a config.json its family did not read, and whether that may be.

A word that scales or bounds the numbers of some architecture leaves no trace in the weights: a config that holds one
which its own family does not read asks for a graph that nobody would build. Such a word is refused unless its value
is neutral. Everything else that is unread is listed.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from engine.errors import UnsupportedConfig

# Never part of a forward: names of things, training, limits, token ids, other towers, how weights are stored.
BOOKKEEPING = re.compile(
    r"architectures|auto_map|model_type|_name_or_path|name_or_path|(torch_)?dtype|transformers_version|use_cache"
    r"|\w*token_(id|ids|index)|id2label|label2id|num_labels|problem_type|tokenizer_class|chat_template"
    r"|initializer_\w+|init_\w+|\w*dropout\w*|\w*pdrop\w*|\w*aux_loss\w*|aux_loss_alpha|seq_aux|\w*z_loss\w*|z_loss\w*"
    r"|output_\w+(?<!multiplier)|return_dict\w*|gradient_checkpointing|pretraining_tp|is_decoder|is_encoder_decoder"
    r"|_?attn_implementation\w*|_?experts_implementation|use_flash_attn|fused_\w+|cache_implementation|torchscript"
    r"|quantization|quantization_config|compression_config|mlx_frontier|unsloth_\w+|vision_\w+|audio_\w+|image_\w+"
    r"|video_\w+|mm_\w+|(vision|audio)_config|max_position_embeddings|max_sequence_length|max_seq_len|n_positions|n_ctx"
    r"|seq_length|model_max_length|rope_max_length|num_nextn_predict_layers|ep_size|language|license|tie_encoder_decoder"
)

# Changes logits without a trace in the weights -> its neutral values; null is neutral everywhere.
SILENT: dict[str, tuple[float, ...]] = {
    "activation_situ_beta": (),
    "activation_situ_linear_beta": (),
    "alpha": (1,),
    "altup_coef_clip": (),
    "attention_in_multiplier": (1,),
    "attention_out_multiplier": (1,),
    "attention_multiplier": (),
    "attention_value_scale": (1,),
    "attn_logit_softcapping": (0,),
    "clip_qkv": (0,),
    "embedding_multiplier": (1,),
    "final_logit_softcapping": (0,),
    "gate_temp": (1,),
    "gate_lower_bound": (),
    "gegelu_limit": (),
    "kda_lower_bound": (),
    "key_multiplier": (1,),
    "lm_head_multiplier": (1,),
    "logit_scale": (1,),
    "logits_scaling": (1,),
    "logits_soft_cap": (0,),
    "loop_num": (0, 1),
    "moe_routed_scaling_factor": (1,),
    "moe_router_logit_softcapping": (0,),
    "moe_router_scaling_factor": (1,),
    "mup_attn_multiplier": (),
    "mup_embedding_multiplier": (1,),
    "mup_width_multiplier": (1,),
    "n_group": (0, 1),
    "no_rope_layer_interval": (0,),
    "num_expert_group": (0, 1),
    "num_loops": (0, 1),
    "output_multiplier": (1,),
    "partial_rotary_factor": (1,),
    "qk_scale_factor": (1,),
    "residual_multiplier": (1,),
    "rope_position_scale": (1,),
    "rotary_pct": (1,),
    "route_scale": (1,),
    "routed_scaling_factor": (1,),
    "router_jitter_noise": (0,),
    "scale_depth": (),
    "scale_emb": (1,),
    "ssm_in_multiplier": (1,),
    "ssm_out_multiplier": (1,),
    "topk_group": (0, 1),
}

# Other numbers that some family reads, by why an unread one does no harm. Listed, with this reason.
SHAPES = "the weights' names and shapes would show it"
WINDOWS = "a window or chunk that mlx-lm's module does not apply either"
NAMES = "this family reads it under another name, or has a fixed value, as mlx-lm's module"
HARMLESS: dict[str, str] = {
    SHAPES: (
        "a_low_rank_dim block_dim block_ff_dim block_ffn_dim_multiplier block_multiple_of conv1d_width conv_window "
        "attn_res_block_size routed_expert_hidden_size short_conv_kernel_size "
        "decay_low_rank_dim gate_low_rank_dim layer_group_size lru_width num_swa_attention_heads "
        "num_swa_key_value_heads v_low_rank_dim "
        "conv_L_cache full_attention_interval linear_conv_kernel_dim linear_key_head_dim linear_num_key_heads "
        "linear_num_value_heads linear_value_head_dim "
        "attn_layer_offset attn_layer_period conv_kernel expert_layer_offset expert_layer_period hidden_size_per_head "
        "mamba_d_conv mamba_d_head mamba_d_ssm mamba_d_state mamba_dt_rank mamba_expand mamba_head_dim mamba_n_groups "
        "mamba_n_heads mamba_num_heads mamba_step moe_latent_size n_groups ssm_state_size state_size time_step_rank "
        "altup_active_idx altup_num_inputs cla_share_factor d_model decoder_sparse_step ff_intermediate_size "
        "ffn_dim_divisor ffn_hidden_size ffn_multipliers first_k_dense_replace global_head_dim head_dim hidden_dim "
        "hidden_dim_scale_factor hidden_size hidden_size_per_layer_input interleave_moe_layer_step intermediate_size "
        "intermediate_size_mlp kv_channels kv_n_heads laurel_rank model_dim moe_intermediate_size moe_layer_end_index "
        "moe_layer_freq moe_layer_interval moe_layer_start_index moe_num_experts moe_num_shared_experts "
        "moe_shared_expert_intermediate_size n_embd n_head n_heads n_inner n_kv_heads n_layer n_layers "
        "emb_neighbor_num emb_split_num expert_ffn_hidden_size kv_lora_rank ngram_vocab_size_ratio q_lora_rank "
        "qk_nope_head_dim qk_rope_head_dim zero_expert_num "
        "n_routed_experts n_shared_experts n_shared_head num_attention_groups num_attention_heads "
        "num_attention_heads_per_layer num_dense_layers num_experts num_global_key_value_heads num_heads "
        "num_hidden_layers num_key_value_heads num_kv_heads num_kv_reuse_layers num_kv_shared_layers num_layers "
        "num_local_experts num_query_heads num_shared_expert num_shared_experts num_transformer_layers num_vocab "
        "share_expert_dim shared_expert_intermediate_size shared_intermediate_size swa_head_dim "
        "swa_num_attention_heads swa_num_key_value_heads swa_v_head_dim v_head_dim vocab_size "
        "vocab_size_per_layer_input "
        "candidate_block_size candidate_source_layer_id candidate_topk_blocks dense_intermediate_size hc_mult "
        "hc_sinkhorn_iters index_block_size index_head_dim index_local_blocks index_n_heads index_topk "
        "index_topk_blocks o_groups o_lora_rank sparse_block_size sparse_index_dim sparse_init_block "
        "sparse_local_block sparse_num_index_heads sparse_topk_blocks"
    ),
    WINDOWS: (
        "attention_chunk_size attention_window_size blocksparse_block_size blocksparse_num_local_blocks "
        "blocksparse_vert_stride "
        "dense_attention_every_n_layers loop_window_size max_window_layers sliding_window sliding_window_pattern "
        "sliding_window_size window_size"
    ),
    NAMES: (
        "group_norm_size mixer_rms_eps "
        "activation_sparsity_pattern attn_scale attn_temperature_tuning beta_fast beta_slow dim_model_base factor "
        "floor_scale layer_norm_eps layer_norm_epsilon layer_rope_theta layernorm_epsilon llama_4_scaling_beta "
        "long_factor long_mscale moe_k moe_top_k moe_topk mscale mscale_all_dim norm_eps norm_epsilon "
        "num_experts_per_tok num_experts_per_token original_max_position_embeddings partial_rotary_factors "
        "post_norm_eps query_pre_attn_scalar rms_norm_eps "
        "rope_embedding_base rope_freq_constant rope_local_base_freq rope_local_theta rope_theta rotary_dim "
        "rotary_emb_base short_factor short_mscale swa_rope_theta swiglu_alpha swiglu_limit swiglu_limits "
        "swiglu_limits_shared top_k_experts"
    ),
}
_REASONS = {name: reason for reason, names in HARMLESS.items() for name in names.split()}


@dataclass(frozen=True)
class Found:
    """An unread key by its dotted path."""

    key: str
    value: Any
    why: str


@dataclass(frozen=True)
class Unread:
    """`bookkeeping`: keys that are never part of a forward. `refused`: what makes the config an error."""

    bookkeeping: tuple[str, ...]
    listed: tuple[Found, ...]
    refused: tuple[Found, ...]

    def check(self, where: object) -> None:
        """Raise `UnsupportedConfig` that names each refused key, its value and what would be allowed."""
        if self.refused:
            parts = "; ".join(f"{found.key}={found.value!r} ({found.why})" for found in self.refused)
            raise UnsupportedConfig(
                f"{where}: config.json asks for what this architecture does not have: {parts}; "
                "without the key the folder loads as mlx-lm loads it"
            )


def find_unread(config: Mapping[str, Any], seen: Collection[str], *, strict: bool = False) -> Unread:
    """Sort the keys of a config.json that are not in `seen` (dotted paths, as `Config.seen` has them).

    Objects are entered where something in them was read. strict: whatever is not bookkeeping must be neutral, since
    nobody vouches for what this model_type ignores.
    """
    bookkeeping: list[str] = []
    listed: list[Found] = []
    refused: list[Found] = []
    for path, value in _unseen(config, seen, ""):
        name = path.rsplit(".", 1)[-1]
        if BOOKKEEPING.fullmatch(name):
            bookkeeping.append(path)
        elif name in SILENT and _is_number(value) and value not in SILENT[name]:
            neutral = ", ".join(map(str, SILENT[name])) or "none but null"
            refused.append(Found(path, value, f"other architectures compute with it; neutral: {neutral}"))
        elif strict and not _neutral(name, value):
            refused.append(Found(path, value, "the universal reader knows no such key; neutral: null, false, 0"))
        else:
            listed.append(Found(path, value, _reason(name, value)))
    return Unread(tuple(bookkeeping), tuple(listed), tuple(refused))


def _unseen(config: Mapping[str, Any], seen: Collection[str], at: str) -> Iterator[tuple[str, Any]]:
    for key, value in config.items():
        path = at + key
        if isinstance(value, Mapping) and any(other.startswith(path + ".") for other in seen):
            yield from _unseen(value, seen, path + ".")
        elif path not in seen:
            yield path, value


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _neutral(name: str, value: object) -> bool:
    return not value or name in SILENT or (name in ("hidden_act", "hidden_activation") and value in ("silu", "swish"))


def _reason(name: str, value: object) -> str:
    if value is None:
        return "null"
    if name in SILENT:
        return "at a neutral value"
    return _REASONS.get(name, "no family computes with it as a number")
