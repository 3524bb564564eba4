"""phixtral: phi's parallel block with one layer norm, experts without a gate, attention in float32."""

import math

from engine.graph.families.common import ArchSpec, Config, HeadSpec, StemSpec, layer_norm, layer_norms, plain_rope
from engine.graph.renames import stacked
from engine.graph.spec import RouterSpec

_EPS = 1e-5  # not in the config


def spec(config: Config) -> ArchSpec:
    dim, heads, count = config.positive("model_dim"), config.positive("num_heads"), config.positive("num_layers")
    config = config.replaced(vocab_size=config.positive("num_vocab"), hidden_size=dim, num_hidden_layers=count)
    sizes = {"heads": heads, "kv_heads": heads, "head_dim": dim // heads, "scale": math.sqrt(1 / (dim // heads))}
    rope, router = plain_rope(config.positive("rotary_dim"), 10000.0), RouterSpec(score="logits", selected="softmax")
    expert = config.mlp(hidden=4 * dim, act="gelu_precise", gate=None, up="fc1", down="fc2", bias=True)
    return config.decoder(
        config.attention(rope=rope, qkv="Wqkv", o="out_proj", bias=True, float32="always", **sizes),
        config.moe(router, experts="num_local_experts", hidden=4 * dim, expert=expert),
        attn_key="mixer",
        mlp_key="moe",
        norms=layer_norms(_EPS, "ln", None),
        flow="parallel",
        stem=StemSpec(key="transformer.embd.wte"),
        layers_key="transformer.h",
        norm=layer_norm("lm_head.ln", _EPS),
        head=HeadSpec(tied=False, key="lm_head.linear", bias=True),
        rules=stacked("moe", "switch_mlp", {"fc1": "fc1", "fc2": "fc2"}, experts="mlp"),
    )
