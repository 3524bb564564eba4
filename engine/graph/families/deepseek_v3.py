"""deepseek_v3: latent attention, and glm4_moe's group-limited sigmoid routing after some dense layers."""

from typing import Any

import mlx.core as mx

from engine.graph.families.common import (
    ArchSpec,
    Change,
    Config,
    Drop,
    Float8Blocks,
    Rename,
    RouterSpec,
    Split,
    stacked,
)
from engine.graph.families.glm4_moe import grouped_router, routed
from engine.graph.latent import LatentSpec, SplitHeads
from engine.graph.renames import DropLayers
from engine.graph.rope import mscale

# Signed 4-bit integers of an original checkpoint: groups of affine4 whose zero is 8.
PACKED = (
    Drop((r"\.weight_shape$",)),
    Change(r"\.weight_packed$", lambda codes: codes.view(mx.uint32)),
    Rename(r"\.weight_packed$", ".weight"),
    Split(r"(.*)\.weight_scale", (r"\1.scales", r"\1.biases"), lambda scales: [scales, -8 * scales]),
)


def latent(config: Config, **changes: Any) -> LatentSpec:
    """Latent attention as the config's keys say, with `changes` on top."""
    if config.get("rope_interleave") is False and "rope" not in changes:
        raise config.invalid("rope_interleave", False, "true: pairs of neighbours turn")
    nope, turned = config.positive("qk_nope_head_dim"), config.positive("qk_rope_head_dim")
    rope = changes.get("rope") or config.rope(turned, traditional=True)
    scaling = Config(rope.scaling, f"{config.path}rope_scaling.", config.seen)
    gain = mscale(scaling.number("factor", 1.0), scaling.number("mscale_all_dim", 0.0, zero=True))
    fields: dict[str, Any] = {
        "heads": config.positive("num_attention_heads"),
        "rank": config.positive("kv_lora_rank"),
        "nope": nope,
        "turned": turned,
        "v_dim": changes.get("v_dim") or config.positive("v_head_dim"),
        "scale": (nope + turned) ** -0.5 * gain * gain,
        "eps": 1e-6,
        "rope": rope,
        "q_rank": None if config.get("q_lora_rank") is None else config.positive("q_lora_rank"),
        "bias": config.flag("attention_bias", False),
    }
    return LatentSpec(**{**fields, **changes})


def mixture(config: Config, router: RouterSpec, cast: bool = True) -> Any:
    """The feed-forward of layer i, as a function of i: dense in the first layers, a mixture in the later ones."""
    dense, sparse = config.mlp(), routed(config, router, cast=cast)
    first, every = config.count("first_k_dense_replace"), config.positive("moe_layer_freq", 1)
    return lambda i: sparse if i >= first and i % every == 0 else dense


def built(config: Config, attn: Any, *rules: Any, **router: Any) -> ArchSpec:
    """A decoder of that attention and the mixtures. rules: from the original's names; router: changes to it."""
    config.choice("topk_method", ("noaux_tc",), "noaux_tc")
    config.choice("scoring_func", ("sigmoid",), "sigmoid")
    further = DropLayers(config.positive("num_hidden_layers"))
    feed = mixture(config, grouped_router(config, **router))
    return config.decoder(attn, feed, tied=False, more_rules=(further, *rules, *stacked("mlp", "switch_mlp")))


def spec(config: Config) -> ArchSpec:
    attn = latent(config)
    return built(config, attn, *PACKED, Float8Blocks(), SplitHeads(attn))
