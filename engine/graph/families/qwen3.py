"""qwen3: llama with a norm on each query and key head."""

from engine.graph.families.common import Config, arch, attention, mlp, pre_norms, qk_heads, rope
from engine.graph.spec import ArchSpec, LayerSpec


def spec(config: Config) -> ArchSpec:
    head_dim = config.positive("head_dim")
    attn = attention(config, head_dim=head_dim, rope=rope(config, head_dim, None), qk_norm=qk_heads(config))
    layer = LayerSpec(attention=attn, mlp=mlp(config), norms=pre_norms(config))
    return arch(config, layer, tied=config.flag("tie_word_embeddings"))
