"""Klear: sigmoid routing with a correction bias, and a softmax that weighs the experts against the shared ones."""

from engine.graph.blended_moe import BlendedMoeSpec
from engine.graph.families.common import Config, arch, attention, even_head_dim, mlp, pre_norms, qk_heads
from engine.graph.renames import ROTARY, stacked
from engine.graph.spec import ArchSpec, LayerSpec, MoeSpec, RouterSpec


def spec(config: Config) -> ArchSpec:
    bias, hidden = config.flag("attention_bias"), config.positive("moe_intermediate_size")
    attn = attention(config, head_dim=even_head_dim(config), qkv_bias=bias, out_bias=bias, qk_norm=qk_heads(config))
    router = RouterSpec(
        score="sigmoid_float32",
        correction="expert_bias",
        normalise="sum" if config.flag("norm_topk_prob") else None,
        cast="input",
    )
    experts = config.count("num_experts")
    top_k = config.positive("num_experts_per_tok")
    moe = MoeSpec(experts=experts, top_k=top_k, router=router, expert=mlp(config, hidden=hidden), at="experts")
    sparse = BlendedMoeSpec(moe=moe, shared=mlp(config, hidden=hidden * config.positive("n_shared_experts")))
    step, dense = config.positive("decoder_sparse_step"), config.read("mlp_only_layers")
    layers = [
        LayerSpec(
            attention=attn,
            mlp=sparse if i not in dense and experts > 0 and (i + 1) % step == 0 else mlp(config),
            norms=pre_norms(config),
        )
        for i in range(config.positive("num_hidden_layers"))
    ]
    return arch(config, layers, tied=False, rules=(ROTARY, *stacked("mlp", "experts")))
