"""deepseek: softmax routing by a bare matrix after some dense layers, scores as they are, shared experts."""

from engine.graph.families.common import Config, arch, attention, even_head_dim, mlp, pre_norms
from engine.graph.renames import ROTARY, stacked
from engine.graph.spec import ArchSpec, LayerSpec, MoeSpec, RouterSpec


def spec(config: Config) -> ArchSpec:
    bias = config.flag("attention_bias", False)
    attn = attention(config, head_dim=even_head_dim(config), qkv_bias=bias, out_bias=bias)
    dense, sparse = mlp(config), None
    experts, shared = config.read("n_routed_experts", None), config.read("n_shared_experts", None)
    if experts is not None:
        hidden = config.positive("moe_intermediate_size", 1407)
        sparse = MoeSpec(
            experts=config.positive("n_routed_experts"),
            top_k=config.positive("num_experts_per_tok"),
            router=RouterSpec(raw=True, score="softmax"),
            expert=mlp(config, hidden=hidden),
            shared=mlp(config, hidden=hidden * config.positive("n_shared_experts")) if shared is not None else None,
        )
    first, every = config.count("first_k_dense_replace", 0), config.positive("moe_layer_freq", 1)
    layers = [
        LayerSpec(
            attention=attn,
            mlp=sparse if sparse is not None and i >= first and i % every == 0 else dense,
            norms=pre_norms(config),
        )
        for i in range(config.positive("num_hidden_layers"))
    ]
    return arch(config, layers, tied=False, rules=(ROTARY, *stacked("mlp", "switch_mlp")))
