"""lille-130m: llama with the norms inside of the mixers, q, k and v in one matrix, a traditional rope."""

from engine.graph.families.common import ArchSpec, Config, Drop, StemSpec, plain_rope
from engine.graph.families.gpt2 import llama_names


def spec(config: Config) -> ArchSpec:
    config = llama_names(config).replaced(rms_norm_eps=config.number("layer_norm_eps"))
    rope = plain_rope(config.positive("head_dim"), config.number("rope_theta"), traditional=True)
    return config.decoder(
        config.attention(kv_heads=config.positive("n_kv_heads"), rope=rope, qkv="qkv_proj", o="out_proj"),
        config.mlp(hidden=256 * round(int(8 * config.positive("hidden_size") / 3) / 256)),
        norms=config.pre_norms("attention.norm", "feed_forward.norm"),
        attn_key="attention",
        mlp_key="feed_forward",
        tied=True,
        stem=StemSpec(key="transformer.tok_embeddings"),
        norm=config.rms("transformer.norm"),
        layers_key="transformer.layers",
        rules=(Drop((r"rotary_emb",)),),
    )
