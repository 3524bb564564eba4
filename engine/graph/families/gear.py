"""gear: gemma3's layers with full attention, a sliding window or a mixer of short convolutions, by layer_types."""

from dataclasses import replace
from typing import Any

from engine.graph.conv_gate import ConvGateSpec
from engine.graph.families.common import (
    ArchSpec,
    Config,
    Drop,
    HeadSpec,
    LayerSpec,
    Norms,
    NormSpec,
    QkNorm,
    StemSpec,
    plain_rope,
)
from engine.graph.families.gemma3_text import flat_ropes
from engine.graph.renames import FILTERS

ACTS = dict.fromkeys(("gelu_pytorch_tanh", "gelu_new", "gelu_fast"), "gelu_approx")
ACTS |= {"gelu": "gelu", "silu": "silu", "swish": "silu"}


def spec(config: Config) -> ArchSpec:
    config = flat_ropes(config).replaced(rope_traditional=False)
    if config.flag("use_bidirectional_attention", False):
        raise config.invalid("use_bidirectional_attention", True, "false")

    def norm(key: str) -> NormSpec:
        return replace(config.rms(key, 1.0), kind="rms_cast")

    def cap(key: str) -> float | None:
        return config.number(key) if config.get(key) else None

    head_dim, bias = config.positive("head_dim"), config.flag("attention_bias", False)
    full = config.attention(
        theta=1000000.0,
        bias=bias,
        qk_norm=QkNorm(q=norm("q_norm"), k=norm("k_norm")),
        scale=config.number("query_pre_attn_scalar", head_dim) ** -0.5,
        softcap=cap("attn_logit_softcapping"),
    )
    assert full.qk_norm is not None
    local = plain_rope(head_dim, config.number("rope_local_base_freq", 10000.0))
    sizes: dict[str, Any] = {"heads": full.heads, "kv_heads": full.kv_heads, "head_dim": head_dim, "bias": bias}
    mixers: dict[str, Any] = {
        "full_attention": full,
        "sliding_attention": replace(full, rope=local, **config.sliding(config.positive("sliding_window", 512))),
        "conv_mixer": ConvGateSpec(width=config.positive("conv_L_cache", 3), norms=full.qk_norm, **sizes),
    }
    norms = Norms(
        pre_attn=norm("input_layernorm"),
        post_attn=norm("post_attention_layernorm"),
        pre_mlp=norm("pre_feedforward_layernorm"),
        post_mlp=norm("post_feedforward_layernorm"),
    )
    feed = config.mlp(act=ACTS[config.choice("hidden_activation", ACTS, "gelu_pytorch_tanh")])
    layers = []
    for kind in config.each("layer_types", ["full_attention"] * config.positive("num_hidden_layers")):
        if kind not in mixers:
            raise config.invalid("layer_types", kind, mixers)
        at = "local_mixer" if kind == "conv_mixer" else "self_attn"
        layers.append(LayerSpec(attention=mixers[kind], attn_key=at, mlp=feed, norms=norms))
    return config.arch(
        layers,
        norm=norm("model.norm"),
        stem=StemSpec(scale=config.positive("hidden_size") ** 0.5),
        head=HeadSpec(tied=config.flag("tie_word_embeddings", True), softcap=cap("final_logit_softcapping")),
        more_rules=(Drop((r"(^|\.)embed_scale$",)), FILTERS),
    )
