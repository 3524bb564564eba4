"""bailing_hybrid: lightning attention in blocks of tokens, and latent attention where a group of layers ends; routing
that can rank no expert of a group that is left out."""

import math

from engine.graph.families.bailing_moe import arch, mixture, projections
from engine.graph.families.bailing_moe_linear import mixers
from engine.graph.families.common import ArchSpec, Config
from engine.graph.families.deepseek_v3 import latent
from engine.graph.latent import SplitHeads
from engine.graph.renames import DropLayers


def spec(config: Config) -> ArchSpec:
    heads, eps = config.positive("num_attention_heads"), config.number("rms_norm_eps")
    head_dim = config.count("head_dim") or config.even_head_dim()
    dims, turned = int(head_dim * config.number("partial_rotary_factor")), config.positive("qk_rope_head_dim")
    if not 0 < dims <= head_dim or dims % 2:
        raise config.invalid("partial_rotary_factor", config["partial_rotary_factor"], f"an even part of {head_dim}")
    linear = projections(config, True, head_dim=head_dim, kv_heads=heads, rope=config.rope(dims))
    rope, bias = config.rope(turned, traditional=config.flag("rope_interleave")), config.flag("use_qkv_bias", False)
    full = latent(config, eps=eps, bias=bias, o="dense", rope=rope)
    sparse = None
    if config.get("num_experts") is not None:
        # A width for the shared experts is that of all of them.
        one = config.get("moe_shared_expert_intermediate_size") and config.count("num_shared_experts")
        routed = config.replaced(num_shared_experts=1) if one else config
        sparse = mixture(routed, compiled=False, pick="front", dropped=-math.inf)
    further = DropLayers(config.positive("num_hidden_layers"))
    return arch(config, mixers(config, full, linear, first=0, blocks=True), sparse, further, SplitHeads(full))
