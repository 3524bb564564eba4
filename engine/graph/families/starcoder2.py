"""starcoder2: layer norms, biases everywhere, an ungated MLP with gelu; a window in the config is not applied."""

from engine.graph.families.common import Config, layer_norm, plain_rope
from engine.graph.spec import ArchSpec, LayerSpec, Norms


def spec(config: Config) -> ArchSpec:
    head_dim = config.positive("hidden_size") // config.positive("num_attention_heads")
    eps = config.number("norm_epsilon", 1e-5)
    attn = config.attention(
        head_dim=head_dim,
        kv_heads=config.positive("num_key_value_heads"),
        rope=plain_rope(head_dim, config.number("rope_theta", 100000)),
        qkv_bias=True,
        out_bias=True,
    )
    feed = config.mlp(gate=None, up="c_fc", down="c_proj", act="gelu", bias=True)
    norms = Norms(pre_attn=layer_norm("input_layernorm", eps), pre_mlp=layer_norm("post_attention_layernorm", eps))
    layer = LayerSpec(attention=attn, mlp=feed, norms=norms)
    sized = config.replaced(vocab_size=config.positive("vocab_size", 49152))
    return sized.arch(layer, norm=layer_norm("model.norm", eps), rules=())
