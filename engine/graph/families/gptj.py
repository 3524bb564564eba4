"""gptj: attention and MLP read the same norm in parallel; a traditional rope on part of a head; a head with a bias."""

from engine.graph.families.common import ArchSpec, Config, HeadSpec, StemSpec, layer_norm, layer_norms, plain_rope
from engine.graph.families.gpt2 import llama_names
from engine.graph.renames import Drop, Rename

RULES = (Drop((r"^transformer\.h\.\d+\.attn\.(masked_)?bias$",)), Rename(r"^transformer\.", "model."))


def spec(config: Config) -> ArchSpec:
    config = llama_names(config)
    eps, hidden = config.number("layer_norm_epsilon"), 4 * config.positive("hidden_size")
    rope = plain_rope(config.count("rotary_dim", 0) or config.positive("head_dim"), 10000, traditional=True)
    return config.decoder(
        config.attention(kv_heads=config.positive("n_head"), rope=rope, o="out_proj"),
        config.mlp(hidden=hidden, act="gelu_approx", gate=None, up="fc_in", down="fc_out", bias=True),
        norms=layer_norms(eps, "ln_1", None),
        attn_key="attn",
        flow="parallel",
        stem=StemSpec(key="model.wte"),
        norm=layer_norm("model.ln_f", eps),
        head=HeadSpec(tied=False, bias=True),
        layers_key="model.h",
        rules=RULES,
    )
