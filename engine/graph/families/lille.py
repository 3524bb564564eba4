"""lille-130m: llama with the norms inside of the mixers, q, k and v in one matrix, a traditional rope."""

from engine.graph.families.common import Config, plain_rope
from engine.graph.families.gpt2 import llama_names
from engine.graph.renames import Drop
from engine.graph.spec import ArchSpec, LayerSpec, MlpSpec, StemSpec


def spec(config: Config) -> ArchSpec:
    config = llama_names(config).replaced(rms_norm_eps=config.number("layer_norm_eps"))
    rope = plain_rope(config.positive("head_dim"), config.number("rope_theta"), traditional=True)
    layer = LayerSpec(
        attention=config.attention(kv_heads=config.positive("n_kv_heads"), rope=rope, qkv="qkv_proj", o="out_proj"),
        mlp=MlpSpec(hidden=256 * round(int(8 * config.positive("hidden_size") / 3) / 256)),
        norms=config.pre_norms("attention.norm", "feed_forward.norm"),
        attn_key="attention",
        mlp_key="feed_forward",
    )
    stem, norm, rules = (
        StemSpec(key="transformer.tok_embeddings"),
        config.rms("transformer.norm"),
        (Drop((r"rotary_emb",)),),
    )
    return config.arch(layer, tied=True, stem=stem, norm=norm, layers_key="transformer.layers", rules=rules)
