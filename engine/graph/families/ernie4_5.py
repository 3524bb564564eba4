"""ernie4_5: llama with the traditional rope, and one switch for the biases of both mixers."""

from engine.graph.families.common import Config, arch, attention, even_head_dim, mlp, plain_rope, pre_norms, rope_base
from engine.graph.spec import ArchSpec, LayerSpec


def spec(config: Config) -> ArchSpec:
    head_dim, bias = config.positive("head_dim", even_head_dim(config)), config.flag("use_bias")
    rope = plain_rope(head_dim, rope_base(config), traditional=True)
    attn = attention(config, head_dim=head_dim, rope=rope, qkv_bias=bias, out_bias=bias)
    layer = LayerSpec(attention=attn, mlp=mlp(config, bias=bias), norms=pre_norms(config))
    return arch(config, layer, tied=config.flag("tie_word_embeddings"), rules=())
