"""internlm2: llama under its own names, with q, k and v in one matrix, cut per key/value head."""

from engine.graph.families.common import ArchSpec, Config, Drop, HeadSpec, StemSpec

TABLES = Drop((r"attention\.rope\.inv_freq",))


def spec(config: Config) -> ArchSpec:
    names = {"qkv": "wqkv", "packed": "groups", "o": "wo"}
    return config.decoder(
        config.attention(head_dim=config.even_head_dim(), bias=config.flag("bias", True), **names),
        config.mlp(gate="w1", up="w3", down="w2"),
        norms=config.pre_norms("attention_norm", "ffn_norm"),
        attn_key="attention",
        mlp_key="feed_forward",
        head=HeadSpec(tied=config.tied(False), key="output"),
        stem=StemSpec(key="model.tok_embeddings"),
        rules=(TABLES,),
    )
