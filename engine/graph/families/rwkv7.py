"""rwkv7: no attention; a recurrence over a memory per head, and MLPs that see the token before."""

import mlx.core as mx

from engine.graph.families.common import ArchSpec, Change, Config, StemSpec, layer_norm, layer_norms
from engine.graph.wkv7 import ChannelMixSpec, TimeMixSpec


def spec(config: Config) -> ArchSpec:
    dim, head_dim, eps = config.positive("hidden_size"), config.positive("head_dim"), config.number("norm_eps")
    if dim % head_dim:
        raise config.invalid("head_dim", head_dim, f"a divisor of hidden_size={dim}")
    decay, rate, gate, values = (config.positive(f"{name}_low_rank_dim") for name in ("decay", "a", "gate", "v"))

    def per_head(array: mx.array) -> mx.array:
        return array.reshape(-1, head_dim)

    def mixer(i: int) -> TimeMixSpec:
        ranks = (decay, rate, gate, values if i else None)
        return TimeMixSpec(heads=dim // head_dim, head_dim=head_dim, ranks=ranks)

    return config.decoder(
        mixer,
        ChannelMixSpec(hidden=config.positive("intermediate_size")),
        attn_key="attn",
        mlp_key="ffn",
        norms=layer_norms(eps, "attn_norm", "ffn_norm"),
        tied=config.tied(False),
        stem=StemSpec(key="model.embeddings", norm=layer_norm("model.layers.0.pre_norm", eps)),
        norm=layer_norm("model.norm", eps),
        more_rules=(Change(r"\.(k_k|k_a|g_norm\.(weight|bias))$", per_head),),
    )
