"""gemma3_text: gemma's norms, per head too; sliding layers have a rope of their own, every n-th layer is global; sums
are clipped in float16; tied where the checkpoint has no head."""

from collections.abc import Mapping

from engine.graph.families.common import ArchSpec, AttentionSpec, Config, HeadSpec, StemSpec, plain_rope
from engine.graph.families.gemma2 import around

_BASES = {"rope_theta": 1000000.0, "rope_local_base_freq": 10000.0}  # where neither form of a config has them


def flat_ropes(config: Config) -> Config:
    """The two ropes that transformers 5 nests by layer type, under their older names where those are absent."""
    nested = config.get("rope_parameters")
    if not isinstance(nested, Mapping) or "full_attention" not in nested:
        return config
    full, base = nested["full_attention"], nested.get("sliding_attention", {}).get("rope_theta")
    older = {"rope_theta": full.get("rope_theta"), "rope_local_base_freq": base, "rope_scaling": full}
    return config.defaulted({k: v for k, v in older.items() if v is not None}).replaced(rope_parameters=None)


def spec(config: Config) -> ArchSpec:
    config = flat_ropes(config).defaulted(_BASES).replaced(rope_traditional=False)
    local_rope = plain_rope(config.positive("head_dim"), config.number("rope_local_base_freq"))

    def attn(local: bool) -> AttentionSpec:
        rope = local_rope if local else config.rope(config.positive("head_dim"))
        scale, window = config.number("query_pre_attn_scalar") ** -0.5, config.sliding() if local else {}
        return config.attention(rope=rope, scale=scale, qk_norm=config.qk_heads(offset=1.0), **window)

    kinds = {"sliding_attention": attn(True), "full_attention": attn(False)}
    return config.decoder(
        [kinds[kind] for kind in config.full_every(config.positive("sliding_window_pattern"))],
        config.mlp(act="gelu_approx"),
        norms=around(config),
        clip=True,
        norm=config.rms("model.norm", 1.0),
        stem=StemSpec(scale=config.positive("hidden_size") ** 0.5, scale_bfloat16=True),
        head=HeadSpec(tied="absent"),
        rules=(),
    )
