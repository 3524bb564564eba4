"""mimo: llama with biases on q, k and v; layers that predict further tokens are left out."""

from engine.graph.families.common import Config, arch, attention, even_head_dim, mlp, pre_norms, rope
from engine.graph.renames import ROTARY, UNTIE, Drop
from engine.graph.spec import ArchSpec, LayerSpec

FURTHER = Drop((r"^model\.mtp_layers\.",))


def spec(config: Config) -> ArchSpec:
    head_dim, tied = even_head_dim(config), config.flag("tie_word_embeddings", False)
    attn = attention(config, head_dim=head_dim, rope=rope(config, head_dim), qkv_bias=True)
    rules = (ROTARY, FURTHER, UNTIE) if tied else (ROTARY, FURTHER)
    return arch(config, LayerSpec(attention=attn, mlp=mlp(config), norms=pre_norms(config)), tied=tied, rules=rules)
