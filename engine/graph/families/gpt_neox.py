"""gpt_neox: layer norms, attention and MLP in parallel after a norm each, q, k and v of a head side by side."""

from engine.graph.families.common import ArchSpec, Config, HeadSpec, StemSpec, layer_norm, layer_norms, plain_rope
from engine.graph.renames import Drop, Rename

RULES = (
    Drop((r"\.attention\.(bias|masked_bias|rotary_emb\.inv_freq)$",)),
    Rename(r"^(model\.)?gpt_neox\.layers\.", "model.h."),
    Rename(r"^((model\.)?gpt_neox\.|(?!model\.))", "model."),
)


def spec(config: Config) -> ArchSpec:
    heads, head_dim = config.positive("num_attention_heads"), config.even_head_dim()
    rope = plain_rope(int(head_dim * config.number("rotary_pct")), config.number("rotary_emb_base"))
    names, eps = {"qkv": "query_key_value", "packed": "groups", "o": "dense"}, config.number("layer_norm_eps")
    wide = {"hidden": 4 * heads * head_dim, "gate": None, "up": "dense_h_to_4h", "down": "dense_4h_to_h"}
    return config.decoder(
        config.attention(head_dim=head_dim, kv_heads=heads, rope=rope, bias=True, **names),
        config.mlp(act="gelu_approx", bias=True, **wide),
        norms=layer_norms(eps),
        attn_key="attention",
        flow="parallel" if config.flag("use_parallel_residual", True) else "sequential",
        stem=StemSpec(key="model.embed_in"),
        norm=layer_norm("model.final_layer_norm", eps),
        head=HeadSpec(tied=False, key="model.embed_out"),
        layers_key="model.h",
        rules=RULES,
    )
