"""recurrent_gemma: gated recurrences and sliding attention in turn, gemma's norms and embedding, a bounded head.

The norms of layers have mlx-lm's epsilon, whatever rms_norm_eps says; the final one follows it.
"""

import math
from typing import Any

from engine.graph.families.common import ArchSpec, Config, HeadSpec, LayerSpec, StemSpec
from engine.graph.renames import FILTERS
from engine.graph.rg_lru import RgLruSpec

LAYER_EPS = 1e-5
KINDS = ("recurrent", "attention")


def _kinds(config: Config) -> list[str]:
    """The kind of each layer: the pattern, under either of its names, again and again."""
    key = "block_types" if config.get("block_types") is not None else "_block_types"
    pattern = config.holding(key, list)
    if not pattern or not set(map(str, pattern)) <= set(KINDS):
        raise config.invalid(key, pattern, KINDS)
    return [pattern[i % len(pattern)] for i in range(config.positive("num_hidden_layers"))]


def spec(config: Config) -> ArchSpec:
    dim, head_dim, heads = (
        config.positive("hidden_size"),
        config.even_head_dim(),
        config.positive("num_attention_heads"),
    )
    channels = config.positive("lru_width", dim)
    if channels % heads:
        raise config.invalid("lru_width", channels, f"a multiple of num_attention_heads={heads}")
    rope = config.rope(int(head_dim * config.number("partial_rotary_factor", 0.5)))
    bias, window = config.flag("attention_bias"), config.sliding(config.positive("attention_window_size"))
    mixers: dict[str, Any] = {
        "recurrent": RgLruSpec(channels=channels, heads=heads, width=config.positive("conv1d_width", least=2)),
        "attention": config.attention(head_dim=head_dim, rope=rope, qkv_bias=bias, out_bias=True, **window),
    }
    norms = config.replaced(rms_norm_eps=LAYER_EPS).pre_norms("temporal_pre_norm", "channel_pre_norm", offset=1.0)
    feed = config.mlp(hidden=config.positive("intermediate_size") // 2, act="gelu_approx", bias=True)
    return config.arch(
        [
            LayerSpec(attention=mixers[kind], attn_key="temporal_block", mlp=feed, mlp_key="mlp_block", norms=norms)
            for kind in _kinds(config)
        ],
        norm=config.rms("model.final_norm", 1.0),
        stem=StemSpec(scale=math.sqrt(dim) if config.flag("embeddings_scale_by_sqrt_dim", True) else None),
        head=HeadSpec(tied="absent", softcap=config.number("logits_soft_cap", 0.0, zero=True) or None),
        rules=(FILTERS,),
    )
