"""gpt_bigcode: gpt2 with one key/value head for all queries and the exact gelu; biases and the tied head by flag."""

from engine.graph.families.common import Config
from engine.graph.families.gpt2 import gpt, llama_names, plain_mlp
from engine.graph.spec import ArchSpec, HeadSpec


def spec(config: Config) -> ArchSpec:
    config = llama_names(config)
    feed = plain_mlp(config.positive("n_inner"), "gelu", config.flag("mlp_bias", True))
    head = HeadSpec(tied=config.flag("tie_word_embeddings", True))
    kv_heads = 1 if config.flag("multi_query", True) else config.positive("n_head")
    return gpt(config, "transformer", feed, head, kv_heads, config.flag("attention_bias", True), ())
