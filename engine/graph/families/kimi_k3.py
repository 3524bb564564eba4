"""kimi_k3: kimi_linear with one projection for a delta layer's queries, keys and values, gated latent attention,
experts in a narrower width, bounded gates in MLPs, and residuals over blocks of layers; beside a vision tower."""

from typing import Any

import mlx.core as mx

from engine.graph.block_residuals import BlockLayerSpec, BlockMeanSpec
from engine.graph.families.common import DEFAULTS, ArchSpec, Change, Config, GateSpec, Rename
from engine.graph.families.kimi_linear import decay_bound, delta, kimi_layers, kimi_rules, router, unturned
from engine.graph.families.towers import text_tower
from engine.graph.renames import DropLayers, Join
from engine.graph.spec import InnerSpec

NORM_EPS = 1e-6  # of latent attention, whatever rms_norm_eps is


def mixture(config: Config, act: dict[str, Any]) -> Any:
    """The mixture of the layers that have one, or None."""
    if not config.count("num_experts", 0):
        return None
    inner = None
    if config.get("routed_expert_hidden_size") is not None:
        norm = config.rms("routed_expert_norm") if config.flag("latent_moe_use_norm", False) else None
        dim = config.positive("routed_expert_hidden_size")
        inner = InnerSpec(dim=dim, down="routed_expert_down_proj", up="routed_expert_up_proj", norm=norm)
    config.choice("moe_router_activation_func", ("sigmoid",), "sigmoid")
    width, shared = config.positive("moe_intermediate_size"), config.count("num_shared_experts")
    return config.moe(
        router(config, score="sigmoid_float32", cast="logits"),
        top_k="num_experts_per_token",
        expert=config.mlp(hidden=width, **act),
        shared=config.mlp(hidden=width * shared, **act) if shared else None,
        inner=inner,
    )


def text(config: Config) -> ArchSpec:
    """The text tower."""
    eps, linear = config.number("rms_norm_eps"), config.inner("linear_attn_config")
    kda = delta(
        config,
        joined=True,
        gate=("g_proj",) if linear.flag("use_full_rank_gate", False) else ("g_a_proj", "g_b_proj"),
        bound=None if linear.get("gate_lower_bound") is None else decay_bound(linear, "gate_lower_bound", None),
    )
    attn = unturned(
        config,
        eps=NORM_EPS,
        q_rank=None if config.get("q_lora_rank") is None else config.positive("q_lora_rank"),
        gate=GateSpec(key="g_proj") if config.flag("mla_use_output_gate", False) else None,
    )
    config.choice("hidden_act", ("situ",), "situ")
    outer = None if config.get("activation_situ_linear_beta") is None else config.number("activation_situ_linear_beta")
    act = {"act": "situ", "limit": (config.number("activation_situ_beta", 1.0), outer)}
    layers: list[Any] = kimi_layers(config, kda, attn, mixture(config, act), **act)
    outlet = None
    if config.get("attn_res_block_size") is not None:
        size = config.positive("attn_res_block_size")
        layers = [BlockLayerSpec(layer=layer, opens=i % size == 0, eps=eps) for i, layer in enumerate(layers)]
        outlet = BlockMeanSpec(key="model.output_attn_res", eps=eps)
    rules = (
        DropLayers(len(layers)),
        Change(r"\.weight_packed$", lambda weight: weight.view(mx.uint32)),
        Rename(r"\.weight_packed$", ".weight"),
        Rename(r"\.weight_scale$", ".scales"),
        Rename(r"(_res)\.(proj|norm)_weight$", r"\1_\2.weight"),
        *kimi_rules(attn),
        Change(r"\.A_log$", lambda decays: decays[: kda.heads]),
        Join(r"(.*\.self_attn\.)(?P<part>[qkv])_(proj|conv\.conv)\.(\w+)", r"\1qkv_\3.\4", "qkv"),
    )
    return config.arch(layers, tied=config.tied(), outlet=outlet, more_rules=rules)


def spec(config: Config) -> ArchSpec:
    """The text tower under language_model, whose config may be the whole one."""
    inner = config.inner("text_config", **DEFAULTS["kimi_k3"]) if "text_config" in config else config
    return text_tower(config, text(inner))
