"""phimoe: layer norms, biases in attention and head, SparseMixer routing, a longrope with a stated scale."""

from engine.graph.families.common import (
    ArchSpec,
    Config,
    HeadSpec,
    RopeSpec,
    layer_norm,
    layer_norms,
    plain_rope,
    stacked,
)
from engine.graph.families.minimax import EXPERT_NAMES
from engine.graph.mixtures import SparseMixerSpec


def _rope(config: Config, dims: int) -> RopeSpec:
    base, trained = config.number("rope_theta"), config.positive("original_max_position_embeddings", 4096)
    if config.get("rope_scaling") is None:
        return plain_rope(dims, base)
    given = config.inner("rope_scaling")
    # Only this module reads the stated scale; mlx-lm's common longrope always computes it.
    fields = {"original_max_position_embeddings": trained, "gain": given.number("long_mscale"), "type": "longrope"}
    limit = config.positive("max_position_embeddings", 131072)
    return RopeSpec(dims=dims, base=base, scaling={**given, **fields}, max_positions=limit)


def spec(config: Config) -> ArchSpec:
    head_dim, eps = config.even_head_dim(), config.number("rms_norm_eps")
    experts, top_k = config.positive("num_local_experts"), config.positive("num_experts_per_tok")
    jitter, at = config.number("router_jitter_noise"), "block_sparse_moe"
    return config.decoder(
        config.attention(head_dim=head_dim, rope=_rope(config, head_dim), bias=True),
        SparseMixerSpec(experts=experts, top_k=top_k, jitter=jitter, expert=config.mlp()),
        mlp_key=at,
        norms=layer_norms(eps),
        norm=layer_norm("model.norm", eps),
        head=HeadSpec(tied=False, bias=True),
        rules=stacked(at, "switch_mlp", EXPERT_NAMES),
    )
