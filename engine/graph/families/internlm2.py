"""internlm2: llama under its own names, with q, k and v in one matrix, cut per key/value head."""

from engine.graph.families.common import Config
from engine.graph.renames import Drop
from engine.graph.spec import ArchSpec, HeadSpec, LayerSpec, StemSpec

TABLES = Drop((r"attention\.rope\.inv_freq",))


def spec(config: Config) -> ArchSpec:
    head_dim, bias = config.even_head_dim(), config.flag("bias", True)
    attn = config.attention(
        head_dim=head_dim, rope=config.rope(head_dim), qkv="wqkv", packed="groups", o="wo", qkv_bias=bias, out_bias=bias
    )
    layer = LayerSpec(
        attention=attn,
        mlp=config.mlp(gate="w1", up="w3", down="w2"),
        norms=config.pre_norms("attention_norm", "ffn_norm"),
        attn_key="attention",
        mlp_key="feed_forward",
    )
    head = HeadSpec(tied=config.flag("tie_word_embeddings", False), key="output")
    return config.arch(layer, head=head, stem=StemSpec(key="model.tok_embeddings"), rules=(TABLES,))
