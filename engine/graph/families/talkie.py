"""talkie: norms without weights, a rope that turns the other way, gains on queries, mixers and logits, and the
normalised embedding added again after every layer."""

from engine.graph.families.common import DEFAULTS, Config
from engine.graph.per_layer import TailedLayerSpec
from engine.graph.renames import Drop
from engine.graph.spec import ArchSpec, HeadSpec, LayerSpec, Norms, NormSpec, RopeSpec, StemSpec


def spec(config: Config) -> ArchSpec:
    config = config.defaulted(DEFAULTS["talkie"])
    head_dim, norm = config.positive("head_dim"), config.rms(None)
    attn = config.attention(
        kv_heads=config.positive("num_attention_heads"),
        rope=RopeSpec(dims=head_dim, base=config.number("rope_theta"), scaling={"type": "reversed"}),
        q="attn_query",
        k="attn_key",
        v="attn_value",
        o="attn_resid",
        qk_norm=config.qk_heads("rotated", None, None),
        q_gain="head_gain.head_g",
    )
    layer = LayerSpec(
        attention=attn,
        mlp=config.mlp(act="silu", gate="mlp_gate", up="mlp_linear", down="mlp_resid"),
        norms=Norms(pre_attn=norm, post_attn=_gain("attn_gain"), pre_mlp=norm, post_mlp=_gain("mlp_gain")),
        attn_key="attn",
    )
    return config.arch(
        [TailedLayerSpec(layer=layer, embedded="embed_skip.a_g")] * config.positive("num_hidden_layers"),
        stem=StemSpec(key="model.embed", norm=norm),
        layers_key="model.blocks",
        norm=norm,
        head=HeadSpec(tied=False, raw=True, gain="lm_head_gain.w_g"),
        rules=(Drop((r"rotary", r"(cos|sin)$")),),
    )


def _gain(key: str) -> NormSpec:
    return NormSpec(key=f"{key}.a_g", eps=0.0, kind="gain")
