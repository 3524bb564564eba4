"""starcoder2: layer norms, biases everywhere, an ungated MLP with gelu; a window in the config is not applied."""

from engine.graph.families.common import ArchSpec, Config, layer_norm, layer_norms, plain_rope


def spec(config: Config) -> ArchSpec:
    head_dim, eps = config.even_head_dim(), config.number("norm_epsilon", 1e-5)
    rope, kv_heads = plain_rope(head_dim, config.number("rope_theta", 100000)), config.positive("num_key_value_heads")
    config = config.replaced(vocab_size=config.positive("vocab_size", 49152))
    attn = config.attention(head_dim=head_dim, kv_heads=kv_heads, rope=rope, bias=True)
    feed = config.mlp(gate=None, up="c_fc", down="c_proj", act="gelu", bias=True)
    return config.decoder(attn, feed, norms=layer_norms(eps), norm=layer_norm("model.norm", eps), rules=())
