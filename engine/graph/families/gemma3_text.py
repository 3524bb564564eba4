"""gemma3_text: gemma's norms, per head too; sliding layers have a rope of their own, every n-th layer is global; sums
are clipped in float16; tied where the checkpoint has no head."""

from collections.abc import Mapping

from engine.graph.families.common import DEFAULTS, Config, plain_rope
from engine.graph.families.gemma2 import around
from engine.graph.spec import ArchSpec, HeadSpec, LayerSpec, QkNorm, StemSpec


def flat_ropes(config: Config) -> Config:
    """The two ropes that transformers 5 nests by layer type, under their older names where those are absent."""
    nested = config.get("rope_parameters")
    if not isinstance(nested, Mapping) or "full_attention" not in nested:
        return config
    full, local = nested["full_attention"], nested.get("sliding_attention", {})
    older = {
        "rope_theta": full.get("rope_theta"),
        "rope_local_base_freq": local.get("rope_theta"),
        "rope_scaling": full,
    }
    return config.defaulted({k: v for k, v in older.items() if v is not None}).replaced(rope_parameters=None)


def spec(config: Config) -> ArchSpec:
    config = flat_ropes(config).defaulted(DEFAULTS["gemma3_text"]).replaced(rope_traditional=False)
    head_dim, pattern = config.positive("head_dim"), config.positive("sliding_window_pattern")

    def layer(local: bool) -> LayerSpec:
        local_rope = plain_rope(head_dim, config.number("rope_local_base_freq", 10000.0))
        attn = config.attention(
            rope=local_rope if local else config.rope(head_dim, 1000000.0),
            scale=config.number("query_pre_attn_scalar") ** -0.5,
            qk_norm=QkNorm(q=config.rms("q_norm", 1.0), k=config.rms("k_norm", 1.0)),
            **(config.sliding() if local else {}),
        )
        return LayerSpec(attention=attn, mlp=config.mlp(act="gelu_approx"), norms=around(config), clip=True)

    made = {local: layer(local) for local in (True, False)}
    return config.arch(
        [made[(i + 1) % pattern != 0] for i in range(config.positive("num_hidden_layers"))],
        norm=config.rms("model.norm", 1.0),
        stem=StemSpec(scale=config.positive("hidden_size") ** 0.5, scale_bfloat16=True),
        head=HeadSpec(tied="absent"),
        rules=(),
    )
