"""lille-130m: llama with the norms inside of the mixers, q, k and v in one matrix, a traditional rope."""

from engine.graph.families.common import Config, arch, attention, plain_rope, rms
from engine.graph.families.gpt2 import llama_names
from engine.graph.renames import Drop
from engine.graph.spec import ArchSpec, HeadSpec, LayerSpec, MlpSpec, Norms, StemSpec


def spec(config: Config) -> ArchSpec:
    config = llama_names(config).replaced(rms_norm_eps=config.number("layer_norm_eps"))
    dim, heads = config.positive("hidden_size"), config.positive("n_head")
    layer = LayerSpec(
        attention=attention(
            config,
            head_dim=dim // heads,
            kv_heads=config.positive("n_kv_heads"),
            rope=plain_rope(dim // heads, config.number("rope_theta"), traditional=True),
            qkv="qkv_proj",
            o="out_proj",
        ),
        mlp=MlpSpec(hidden=256 * round(int(8 * dim / 3) / 256)),
        norms=Norms(pre_attn=rms(config, "attention.norm"), pre_mlp=rms(config, "feed_forward.norm")),
        attn_key="attention",
        mlp_key="feed_forward",
    )
    return arch(
        config,
        layer,
        tied=True,
        stem=StemSpec(key="transformer.tok_embeddings"),
        norm=rms(config, "transformer.norm"),
        head=HeadSpec(tied=True),
        layers_key="transformer.layers",
        rules=(Drop((r"rotary_emb",)),),
    )
