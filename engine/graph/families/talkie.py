"""talkie: norms without weights, a rope that turns the other way, gains on queries, mixers and logits, and the
normalised embedding added again after every layer."""

from engine.graph.families.common import ArchSpec, Config, Drop, HeadSpec, Norms, NormSpec, RopeSpec, StemSpec
from engine.graph.per_layer import TailedLayerSpec


def spec(config: Config) -> ArchSpec:
    head_dim, norm = config.positive("head_dim"), config.rms(None)
    rope = RopeSpec(dims=head_dim, base=config.number("rope_theta"), scaling={"type": "reversed"})
    names = {"q": "attn_query", "k": "attn_key", "v": "attn_value", "o": "attn_resid", "q_gain": "head_gain.head_g"}
    fields = {"qk_norm": config.qk_heads("rotated", None, None), "kv_heads": config.positive("num_attention_heads")}
    layers = config.layers(
        config.attention(rope=rope, **fields, **names),
        config.mlp(act="silu", gate="mlp_gate", up="mlp_linear", down="mlp_resid"),
        norms=Norms(pre_attn=norm, post_attn=_gain("attn_gain"), pre_mlp=norm, post_mlp=_gain("mlp_gain")),
        attn_key="attn",
    )
    return config.arch(
        [TailedLayerSpec(layer=layer, embedded="embed_skip.a_g") for layer in layers],
        stem=StemSpec(key="model.embed", norm=norm),
        layers_key="model.blocks",
        norm=norm,
        head=HeadSpec(tied=False, raw=True, gain="lm_head_gain.w_g"),
        rules=(Drop((r"rotary", r"(cos|sin)$")),),
    )


def _gain(key: str) -> NormSpec:
    return NormSpec(key=f"{key}.a_g", eps=0.0, kind="gain")
