"""gear: gemma3's layers with full attention, a sliding window or a mixer of short convolutions, by layer_types."""

from dataclasses import replace
from typing import Any

from engine.errors import InvalidValue
from engine.graph.conv_gate import ConvGateSpec
from engine.graph.families.common import Config, plain_rope
from engine.graph.families.gemma2 import around
from engine.graph.families.gemma3_text import flat_ropes
from engine.graph.renames import FILTERS, ROTARY, UNTIE, Drop
from engine.graph.spec import ArchSpec, HeadSpec, LayerSpec, QkNorm, StemSpec

ACTS = {
    "gelu_pytorch_tanh": "gelu_approx",
    "gelu_new": "gelu_approx",
    "gelu_fast": "gelu_approx",
    "gelu": "gelu",
    "silu": "silu",
    "swish": "silu",
}


def spec(config: Config) -> ArchSpec:
    config = flat_ropes(config).defaulted({"sliding_window": 512}).replaced(rope_traditional=False)
    if config.flag("use_bidirectional_attention", False):
        raise InvalidValue(f"config.json {config.path}use_bidirectional_attention", True, "false")
    head_dim, bias = config.positive("head_dim"), config.flag("attention_bias", False)
    attn_cap, final_cap = (
        config.number(key) if config.get(key) else None for key in ("attn_logit_softcapping", "final_logit_softcapping")
    )
    norms = QkNorm(q=config.rms("q_norm", 1.0), k=config.rms("k_norm", 1.0))
    full = config.attention(
        rope=config.rope(head_dim, 1000000.0),
        bias=bias,
        qk_norm=norms,
        scale=config.number("query_pre_attn_scalar", head_dim) ** -0.5,
        softcap=attn_cap,
    )
    local_rope = plain_rope(head_dim, config.number("rope_local_base_freq", 10000.0))
    mixers: dict[str, Any] = {
        "full_attention": full,
        "sliding_attention": replace(full, rope=local_rope, **config.sliding()),
        "conv_mixer": ConvGateSpec(
            heads=full.heads,
            kv_heads=full.kv_heads,
            head_dim=head_dim,
            width=config.positive("conv_L_cache", 3),
            norms=norms,
            bias=bias,
        ),
    }
    feed = config.mlp(act=ACTS[config.choice("hidden_activation", ACTS, "gelu_pytorch_tanh")])
    layers = []
    for kind in config.each("layer_types", ["full_attention"] * config.positive("num_hidden_layers")):
        if kind not in mixers:
            raise InvalidValue(f"config.json {config.path}layer_types", kind, tuple(mixers))
        at = "local_mixer" if kind == "conv_mixer" else "self_attn"
        layers.append(LayerSpec(attention=mixers[kind], attn_key=at, mlp=feed, norms=around(config)))
    tied = config.flag("tie_word_embeddings", True)
    return config.arch(
        layers,
        norm=config.rms("model.norm", 1.0),
        stem=StemSpec(scale=config.positive("hidden_size") ** 0.5),
        head=HeadSpec(tied=tied, softcap=final_cap),
        rules=(Drop((r"(^|\.)embed_scale$",)), ROTARY, FILTERS, *((UNTIE,) if tied else ())),
    )
