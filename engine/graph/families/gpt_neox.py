"""gpt_neox: layer norms, attention and MLP in parallel after a norm each, q, k and v of a head side by side."""

from engine.graph.families.common import Config, arch, attention, layer_norm, plain_rope
from engine.graph.renames import Drop, Rename
from engine.graph.spec import ArchSpec, HeadSpec, LayerSpec, MlpSpec, Norms, StemSpec

RULES = (
    Drop((r"\.attention\.(bias|masked_bias|rotary_emb\.inv_freq)$",)),
    Rename(r"^(model\.)?gpt_neox\.layers\.", "model.h."),
    Rename(r"^((model\.)?gpt_neox\.|(?!model\.))", "model."),
)


def spec(config: Config) -> ArchSpec:
    dim, heads, eps = (
        config.positive("hidden_size"),
        config.positive("num_attention_heads"),
        config.number("layer_norm_eps"),
    )
    head_dim = dim // heads
    layer = LayerSpec(
        attention=attention(
            config,
            head_dim=head_dim,
            kv_heads=heads,
            rope=plain_rope(int(head_dim * config.number("rotary_pct")), config.number("rotary_emb_base")),
            qkv="query_key_value",
            packed="groups",
            o="dense",
            qkv_bias=True,
            out_bias=True,
        ),
        mlp=MlpSpec(hidden=4 * dim, act="gelu_approx", gate=None, up="dense_h_to_4h", down="dense_4h_to_h", bias=True),
        norms=Norms(pre_attn=layer_norm("input_layernorm", eps), pre_mlp=layer_norm("post_attention_layernorm", eps)),
        attn_key="attention",
        flow="parallel" if config.flag("use_parallel_residual", True) else "sequential",
    )
    return arch(
        config,
        layer,
        tied=False,
        stem=StemSpec(key="model.embed_in"),
        norm=layer_norm("model.final_layer_norm", eps),
        head=HeadSpec(tied=False, key="model.embed_out"),
        layers_key="model.h",
        rules=RULES,
    )
