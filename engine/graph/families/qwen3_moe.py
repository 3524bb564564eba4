"""qwen3_moe: qwen3 with softmax routing in every decoder_sparse_step-th layer that is not in mlp_only_layers."""

from typing import Any

from engine.errors import InvalidValue
from engine.graph.families.common import Config
from engine.graph.renames import stacked
from engine.graph.spec import ArchSpec, LayerSpec, MoeSpec, RouterSpec


def softmax_moe(config: Config, cast: bool) -> MoeSpec:
    """Softmax routing, picked from the back and normalised where the config says so."""
    router = RouterSpec(score="softmax", pick="back", normalise="sum" if config.flag("norm_topk_prob") else None)
    return config.moe(router, cast=cast)


def sparse_layers(config: Config, attn: Any, sparse: Any) -> list[LayerSpec]:
    """Layers with `sparse` where decoder_sparse_step and mlp_only_layers leave room for it, dense ones elsewhere."""
    step, dense = config.positive("decoder_sparse_step", 1), config.read("mlp_only_layers", [])
    if not isinstance(dense, (list, tuple)):
        raise InvalidValue("config.json mlp_only_layers", dense, "a list of layers")
    return config.layers(attn, lambda i: (i not in dense and (i + 1) % step == 0 and sparse) or config.mlp())


def spec(config: Config) -> ArchSpec:
    head_dim = config.positive("head_dim")
    attn = config.attention(head_dim=head_dim, rope=config.rope(head_dim), qk_norm=config.qk_heads())
    made = sparse_layers(config, attn, softmax_moe(config, cast=True) if config.count("num_experts") else None)
    return config.arch(made, tied=config.flag("tie_word_embeddings"), more_rules=stacked("mlp", "switch_mlp"))
