"""olmoe: a norm over all query (key) heads together, and experts with softmax routing in every layer."""

from engine.graph.families.common import Config, arch, attention, mlp, pre_norms, qk_heads
from engine.graph.renames import ROTARY, stacked
from engine.graph.spec import ArchSpec, LayerSpec, MoeSpec, RouterSpec


def spec(config: Config) -> ArchSpec:
    bias = config.flag("attention_bias", False)
    moe = MoeSpec(
        experts=config.positive("num_experts"),
        top_k=config.positive("num_experts_per_tok"),
        router=RouterSpec(score="softmax", normalise="sum" if config.flag("norm_topk_prob", False) else None),
        expert=mlp(config, bias=config.flag("mlp_bias", False)),
    )
    attn = attention(config, qkv_bias=bias, out_bias=bias, qk_norm=qk_heads(config, "flat"))
    layer = LayerSpec(attention=attn, mlp=moe, norms=pre_norms(config))
    return arch(config, layer, rules=(ROTARY, *stacked("mlp", "switch_mlp")))
