"""seed_oss: llama with separate switches for the biases of q, k, v and of the output, and a head_dim of its own."""

from engine.graph.families.common import ArchSpec, Config


def spec(config: Config) -> ArchSpec:
    sizes = {"head_dim": config.positive("head_dim"), "kv_heads": config.positive("num_key_value_heads")}
    biases = {"qkv_bias": config.flag("attention_bias", False), "out_bias": config.flag("attention_out_bias", False)}
    feed = config.mlp(bias=config.flag("mlp_bias", False))
    return config.decoder(config.attention(**sizes, **biases), feed, rotary=False)
