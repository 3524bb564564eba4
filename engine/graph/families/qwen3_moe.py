"""qwen3_moe: qwen3 with softmax routing in every decoder_sparse_step-th layer that is not in mlp_only_layers."""

from typing import Any

from engine.graph.families.common import ArchSpec, Config, LayerSpec, MoeSpec, RouterSpec, stacked


def softmax_moe(config: Config, cast: bool) -> MoeSpec:
    """Softmax routing, picked from the back and normalised where the config says so."""
    return config.moe(RouterSpec(score="softmax", pick="back", normalise=config.to_sum()), cast=cast)


def sparse_layers(config: Config, attn: Any, sparse: Any) -> list[LayerSpec]:
    """Layers with `sparse` where decoder_sparse_step and mlp_only_layers leave room for it, dense ones elsewhere."""
    step, dense = config.positive("decoder_sparse_step", 1), config.read("mlp_only_layers", [])
    if not isinstance(dense, (list, tuple)):
        raise config.invalid("mlp_only_layers", dense, "a list of layers")
    return config.layers(attn, lambda i: (i not in dense and (i + 1) % step == 0 and sparse) or config.mlp())


def spec(config: Config) -> ArchSpec:
    attn = config.attention(head_dim=config.positive("head_dim"), qk_norm=config.qk_heads())
    made = sparse_layers(config, attn, softmax_moe(config, cast=True) if config.count("num_experts") else None)
    return config.arch(made, tied=config.tied(), more_rules=stacked("mlp", "switch_mlp"))
