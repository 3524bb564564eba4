"""gpt_bigcode: gpt2 with one key/value head for all queries and the exact gelu; biases and the tied head by flag."""

from engine.graph.families.common import ArchSpec, Config
from engine.graph.families.gpt2 import gpt, llama_names, plain_mlp


def spec(config: Config) -> ArchSpec:
    config, bias = llama_names(config), config.flag("attention_bias", True)
    feed = plain_mlp(config.positive("n_inner"), "gelu", config.flag("mlp_bias", True))
    kv_heads = 1 if config.flag("multi_query", True) else config.positive("n_head")
    return gpt(config, "transformer", feed, config.tied(True), kv_heads, bias, ())
