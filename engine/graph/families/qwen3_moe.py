"""qwen3_moe: qwen3 with softmax routing in every decoder_sparse_step-th layer that is not in mlp_only_layers."""

from __future__ import annotations

from engine.graph.families.common import Config, arch, attention, mlp, pre_norms, qk_heads, rope
from engine.graph.renames import ROTARY, UNTIE, stacked
from engine.graph.spec import ArchSpec, LayerSpec, MoeSpec, RouterSpec


def softmax_moe(config: Config, cast: bool) -> MoeSpec:
    """Softmax routing, picked from the back and normalised where the config says so."""
    return MoeSpec(
        experts=config.positive("num_experts"),
        top_k=config.positive("num_experts_per_tok"),
        router=RouterSpec(score="softmax", pick="back", normalise="sum" if config.flag("norm_topk_prob") else None),
        expert=mlp(config, hidden=config.positive("moe_intermediate_size")),
        cast=cast,
    )


def spec(config: Config) -> ArchSpec:
    head_dim = config.positive("head_dim")
    attn = attention(config, head_dim=head_dim, rope=rope(config, head_dim), qk_norm=qk_heads(config))
    step, dense = config.positive("decoder_sparse_step"), config.read("mlp_only_layers")
    sparse = softmax_moe(config, cast=True) if config.count("num_experts") else mlp(config)

    def layer(i: int) -> LayerSpec:
        routed = i not in dense and (i + 1) % step == 0
        return LayerSpec(attention=attn, mlp=sparse if routed else mlp(config), norms=pre_norms(config))

    tied = config.flag("tie_word_embeddings")
    rules = (ROTARY, *((UNTIE,) if tied else ()), *stacked("mlp", "switch_mlp"))
    return arch(config, [layer(i) for i in range(config.positive("num_hidden_layers"))], tied=tied, rules=rules)
