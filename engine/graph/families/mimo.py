"""mimo: llama with biases on q, k and v; layers that predict further tokens are left out."""

from engine.graph.families.common import Config
from engine.graph.renames import ROTARY, UNTIE, Drop
from engine.graph.spec import ArchSpec, LayerSpec

FURTHER = Drop((r"^model\.mtp_layers\.",))


def spec(config: Config) -> ArchSpec:
    head_dim, tied = config.even_head_dim(), config.flag("tie_word_embeddings", False)
    attn = config.attention(head_dim=head_dim, rope=config.rope(head_dim), qkv_bias=True)
    rules = (ROTARY, FURTHER, UNTIE) if tied else (ROTARY, FURTHER)
    return config.arch(LayerSpec(attention=attn, mlp=config.mlp(), norms=config.pre_norms()), tied=tied, rules=rules)
