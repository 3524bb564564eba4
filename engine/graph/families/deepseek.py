"""deepseek: softmax routing by a bare matrix after some dense layers, scores as they are, shared experts."""

from engine.graph.families.common import ArchSpec, Config, RouterSpec, stacked
from engine.graph.families.glm4_moe import routed


def spec(config: Config) -> ArchSpec:
    attn = config.attention(head_dim=config.even_head_dim(), bias=config.flag("attention_bias"))
    dense, sparse = config.mlp(), routed(config, RouterSpec(raw=True, score="softmax"))
    first, every = config.count("first_k_dense_replace"), config.positive("moe_layer_freq")
    feed = [sparse if i >= first and i % every == 0 else dense for i in range(config.positive("num_hidden_layers"))]
    return config.decoder(attn, feed, tied=False, more_rules=stacked("mlp", "switch_mlp"))
