"""gptj: attention and MLP read the same norm in parallel; a traditional rope on part of a head; a head with a bias."""

from engine.graph.families.common import DEFAULTS, Config, layer_norm, plain_rope
from engine.graph.families.gpt2 import llama_names
from engine.graph.renames import Drop, Rename
from engine.graph.spec import ArchSpec, HeadSpec, LayerSpec, MlpSpec, Norms, StemSpec

RULES = (Drop((r"^transformer\.h\.\d+\.attn\.(masked_)?bias$",)), Rename(r"^transformer\.", "model."))


def spec(config: Config) -> ArchSpec:
    config = llama_names(config.defaulted(DEFAULTS["gptj"]))
    heads, eps = config.positive("n_head"), config.number("layer_norm_epsilon")
    rope = plain_rope(config.count("rotary_dim", 0) or config.positive("head_dim"), 10000, traditional=True)
    hidden = 4 * config.positive("hidden_size")
    layer = LayerSpec(
        attention=config.attention(kv_heads=heads, rope=rope, o="out_proj"),
        mlp=MlpSpec(hidden=hidden, act="gelu_approx", gate=None, up="fc_in", down="fc_out", bias=True),
        norms=Norms(pre_attn=layer_norm("ln_1", eps)),
        attn_key="attn",
        flow="parallel",
    )
    stem, norm, head = StemSpec(key="model.wte"), layer_norm("model.ln_f", eps), HeadSpec(tied=False, bias=True)
    return config.arch(layer, stem=stem, norm=norm, head=head, layers_key="model.h", tied=False, rules=RULES)
