"""gpt_bigcode: gpt2 with one key/value head for all queries and the exact gelu; biases and the tied head by flag."""

from engine.graph.families.common import Config
from engine.graph.families.gpt2 import gpt, layer, llama_names
from engine.graph.spec import ArchSpec, HeadSpec, MlpSpec


def spec(config: Config) -> ArchSpec:
    config = llama_names(config)
    heads, bias = config.positive("n_head"), config.flag("attention_bias", True)
    mlp = MlpSpec(
        hidden=config.positive("n_inner"),
        act="gelu",
        gate=None,
        up="c_fc",
        down="c_proj",
        bias=config.flag("mlp_bias", True),
    )
    made = layer(
        config,
        mlp,
        head_dim=config.positive("hidden_size") // heads,
        kv_heads=1 if config.flag("multi_query", True) else heads,
        qkv_bias=bias,
        out_bias=bias,
    )
    return gpt(config, made, "transformer", HeadSpec(tied=config.flag("tie_word_embeddings", True)))
