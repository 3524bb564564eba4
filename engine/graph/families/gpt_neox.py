"""gpt_neox: layer norms, attention and MLP in parallel after a norm each, q, k and v of a head side by side."""

from engine.graph.families.common import Config, layer_norm, plain_rope
from engine.graph.renames import Drop, Rename
from engine.graph.spec import ArchSpec, HeadSpec, LayerSpec, MlpSpec, Norms, StemSpec

RULES = (
    Drop((r"\.attention\.(bias|masked_bias|rotary_emb\.inv_freq)$",)),
    Rename(r"^(model\.)?gpt_neox\.layers\.", "model.h."),
    Rename(r"^((model\.)?gpt_neox\.|(?!model\.))", "model."),
)


def spec(config: Config) -> ArchSpec:
    heads, head_dim, eps = (
        config.positive("num_attention_heads"),
        config.even_head_dim(),
        config.number("layer_norm_eps"),
    )
    rope = plain_rope(int(head_dim * config.number("rotary_pct")), config.number("rotary_emb_base"))
    names = {"qkv": "query_key_value", "packed": "groups", "o": "dense"}
    up, down = "dense_h_to_4h", "dense_4h_to_h"
    layer = LayerSpec(
        attention=config.attention(head_dim=head_dim, kv_heads=heads, rope=rope, bias=True, **names),
        mlp=MlpSpec(hidden=4 * heads * head_dim, act="gelu_approx", gate=None, up=up, down=down, bias=True),
        norms=Norms(pre_attn=layer_norm("input_layernorm", eps), pre_mlp=layer_norm("post_attention_layernorm", eps)),
        attn_key="attention",
        flow="parallel" if config.flag("use_parallel_residual", True) else "sequential",
    )
    stem, head = StemSpec(key="model.embed_in"), HeadSpec(tied=False, key="model.embed_out")
    norm = layer_norm("model.final_layer_norm", eps)
    return config.arch(layer, stem=stem, norm=norm, head=head, layers_key="model.h", tied=False, rules=RULES)
