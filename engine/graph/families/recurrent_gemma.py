"""recurrent_gemma: gated recurrences and sliding attention in turn, gemma's norms and embedding, a bounded head.

The norms of layers have mlx-lm's epsilon, whatever rms_norm_eps says; the final one follows it.
"""

import math
from typing import Any

from engine.errors import InvalidValue
from engine.graph.families.common import Config
from engine.graph.renames import FILTERS
from engine.graph.rg_lru import RgLruSpec
from engine.graph.spec import ArchSpec, HeadSpec, LayerSpec, Norms, StemSpec

LAYER_EPS = 1e-5
KINDS = ("recurrent", "attention")


def _kinds(config: Config) -> list[str]:
    """The kind of each layer: the pattern, under either of its names, again and again."""
    key = "block_types" if config.get("block_types") is not None else "_block_types"
    pattern = config.holding(key, list)
    if not pattern or not set(map(str, pattern)) <= set(KINDS):
        raise InvalidValue(f"config.json {key}", pattern, KINDS)
    return [pattern[i % len(pattern)] for i in range(config.positive("num_hidden_layers"))]


def spec(config: Config) -> ArchSpec:
    dim, head_dim, width = config.positive("hidden_size"), config.even_head_dim(), config.positive("conv1d_width")
    if width == 1:
        raise InvalidValue("config.json conv1d_width", width, "an integer >= 2")
    channels, heads = config.positive("lru_width", dim), config.positive("num_attention_heads")
    if channels % heads:
        raise InvalidValue("config.json lru_width", channels, f"a multiple of num_attention_heads={heads}")
    mixers: dict[str, Any] = {
        "recurrent": RgLruSpec(channels=channels, heads=heads, width=width),
        "attention": config.attention(
            head_dim=head_dim,
            rope=config.rope(int(head_dim * config.number("partial_rotary_factor", 0.5))),
            qkv_bias=config.flag("attention_bias"),
            out_bias=True,
            **config.sliding(config.positive("attention_window_size")),
        ),
    }
    norms = Norms(
        pre_attn=config.rms("temporal_pre_norm", 1.0, LAYER_EPS), pre_mlp=config.rms("channel_pre_norm", 1.0, LAYER_EPS)
    )
    feed = config.mlp(hidden=config.positive("intermediate_size") // 2, act="gelu_approx", bias=True)
    made = [
        LayerSpec(attention=mixers[kind], attn_key="temporal_block", mlp=feed, mlp_key="mlp_block", norms=norms)
        for kind in _kinds(config)
    ]
    return config.arch(
        made,
        norm=config.rms("model.final_norm", 1.0),
        stem=StemSpec(scale=math.sqrt(dim) if config.flag("embeddings_scale_by_sqrt_dim", True) else None),
        head=HeadSpec(tied="absent", softcap=config.number("logits_soft_cap", zero=True) or None),
        rules=(FILTERS,),
    )
