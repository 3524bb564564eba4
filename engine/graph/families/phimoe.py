"""phimoe: layer norms, biases in attention and head, SparseMixer routing, a longrope with a stated scale."""

from engine.graph.families.common import DEFAULTS, Config, layer_norm, plain_rope
from engine.graph.families.minimax import EXPERT_NAMES
from engine.graph.renames import stacked
from engine.graph.mixtures import SparseMixerSpec
from engine.graph.spec import ArchSpec, HeadSpec, LayerSpec, Norms, RopeSpec


def _rope(config: Config, dims: int) -> RopeSpec:
    base = config.number("rope_theta")
    if config.get("rope_scaling") is None:
        return plain_rope(dims, base)
    scaling = dict(config.inner("rope_scaling"))
    fields: dict[str, float] = {
        "original_max_position_embeddings": config.positive("original_max_position_embeddings", 4096)
    }
    # Only this module reads the stated scale; mlx-lm's common longrope always computes it.
    fields["gain"] = config.inner("rope_scaling").number("long_mscale")
    return RopeSpec(
        dims=dims,
        base=base,
        scaling={**scaling, **fields, "type": "longrope"},
        max_positions=config.positive("max_position_embeddings", 131072),
    )


def spec(config: Config) -> ArchSpec:
    config = config.defaulted(DEFAULTS["phimoe"])
    head_dim, eps = config.even_head_dim(), config.number("rms_norm_eps")
    experts, top_k = config.positive("num_local_experts"), config.positive("num_experts_per_tok")
    moe = SparseMixerSpec(
        experts=experts, top_k=top_k, jitter=config.number("router_jitter_noise"), expert=config.mlp()
    )
    layer = LayerSpec(
        attention=config.attention(head_dim=head_dim, rope=_rope(config, head_dim), qkv_bias=True, out_bias=True),
        mlp=moe,
        mlp_key="block_sparse_moe",
        norms=Norms(pre_attn=layer_norm("input_layernorm", eps), pre_mlp=layer_norm("post_attention_layernorm", eps)),
    )
    return config.arch(
        layer,
        norm=layer_norm("model.norm", eps),
        head=HeadSpec(tied=False, bias=True),
        tied=False,
        rules=stacked("block_sparse_moe", "switch_mlp", EXPERT_NAMES),
    )
