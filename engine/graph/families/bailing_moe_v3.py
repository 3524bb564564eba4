"""bailing_moe_v3: Kimi delta attention of full rank, and gated latent attention in every layer_group_size-th layer and
in those that fill no group; group-limited routing that can rank no expert of a group that is left out."""

import math

from engine.graph.families.common import ArchSpec, Config, GateSpec, RouterSpec, StemSpec, stacked
from engine.graph.families.deepseek_v3 import latent
from engine.graph.families.kimi_linear import decay_bound
from engine.graph.kda import KdaSpec
from engine.graph.latent import SplitHeads
from engine.graph.renames import FILTERS, DropLayers


def spec(config: Config) -> ArchSpec:
    for key in ("no_kda_lora", "kda_safe_gate"):
        if not config.flag(key, True):
            raise config.invalid(key, False, "true: its delta layers have no other form")
    config.choice("score_function", ("sigmoid",), "sigmoid")
    eps, dim = config.number("rms_norm_eps"), config.positive("head_dim")
    factor = config.number("partial_rotary_factor", 1)
    if factor not in (1, config.positive("qk_rope_head_dim") / dim):
        raise config.invalid("partial_rotary_factor", factor, "1, or qk_rope_head_dim / head_dim, which decides alone")
    kda = KdaSpec(
        heads=config.positive("num_attention_heads"),
        dim=dim,
        width=config.positive("short_conv_kernel_size"),
        eps=eps,
        conv="{}_conv1d",
        decay=("f_proj",),
        gate=("g_proj",),
        bound=decay_bound(config, "kda_lower_bound", -5.0),
        float32=True,
    )
    attn = latent(config, eps=eps, bias=False, o="dense", gate=GateSpec(key="g_proj", per_head=True, float32=True))
    router = RouterSpec(
        raw=True,
        float32_in=True,
        score="sigmoid_float32",
        correction="gate.expert_bias" if config.flag("moe_router_enable_expert_bias", True) else None,
        **config.group_limits(),
        dropped=-math.inf,
        normalise="sum" if config.flag("norm_topk_prob", True) else None,
        eps=1e-20,
        scale=config.number("routed_scaling_factor"),
    )
    shared = config.positive("moe_shared_expert_intermediate_size") * config.positive("num_shared_experts")
    sparse = config.moe(router, shared=config.mlp(hidden=shared), cast=True)
    size, count = config.positive("layer_group_size"), config.positive("num_hidden_layers")
    first = config.count("first_k_dense_replace")
    return config.decoder(
        lambda i: attn if (i + 1) % size == 0 or i >= count // size * size else kda,
        lambda i: sparse if i >= first else config.mlp(),
        attn_key="attention",
        tied=config.tied(),
        stem=StemSpec(key="model.word_embeddings"),
        more_rules=(DropLayers(count), *stacked("mlp", "switch_mlp"), FILTERS, SplitHeads(attn)),
    )
