"""phixtral: phi's parallel block with one layer norm, experts without a gate, attention in float32."""

import math

from engine.graph.families.common import DEFAULTS, Config, layer_norm, plain_rope
from engine.graph.renames import stacked
from engine.graph.spec import ArchSpec, HeadSpec, LayerSpec, MlpSpec, MoeSpec, Norms, RouterSpec, StemSpec

_EPS = 1e-5  # not in the config


def spec(config: Config) -> ArchSpec:
    config = config.defaulted(DEFAULTS["phixtral"])
    dim, heads = config.positive("model_dim"), config.positive("num_heads")
    attn = config.attention(
        heads=heads,
        kv_heads=heads,
        head_dim=dim // heads,
        scale=math.sqrt(1 / (dim // heads)),
        rope=plain_rope(config.positive("rotary_dim"), 10000.0),
        qkv="Wqkv",
        qkv_bias=True,
        o="out_proj",
        out_bias=True,
        float32="always",
    )
    moe = MoeSpec(
        experts=config.positive("num_local_experts"),
        top_k=config.positive("num_experts_per_tok"),
        router=RouterSpec(score="logits", selected="softmax"),
        expert=MlpSpec(hidden=4 * dim, act="gelu_precise", gate=None, up="fc1", down="fc2", bias=True),
    )
    layer = LayerSpec(
        attention=attn,
        mlp=moe,
        attn_key="mixer",
        mlp_key="moe",
        norms=Norms(pre_attn=layer_norm("ln", _EPS)),
        flow="parallel",
    )
    return config.replaced(vocab_size=config.positive("num_vocab"), hidden_size=dim).arch(
        [layer] * config.positive("num_layers"),
        stem=StemSpec(key="transformer.embd.wte"),
        layers_key="transformer.h",
        norm=layer_norm("lm_head.ln", _EPS),
        head=HeadSpec(tied=False, key="lm_head.linear", bias=True),
        tied=False,
        rules=stacked("moe", "switch_mlp", {"fc1": "fc1", "fc2": "fc2"}, experts="mlp"),
    )
