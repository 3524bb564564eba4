"""gptj: attention and MLP read the same norm in parallel; a traditional rope on part of a head; a head with a bias."""

from engine.graph.families.common import Config, attention, layer_norm, plain_rope
from engine.graph.families.gpt2 import gpt, llama_names
from engine.graph.renames import Drop, Rename
from engine.graph.spec import ArchSpec, HeadSpec, LayerSpec, MlpSpec, Norms, StemSpec

DEFAULTS = {"n_embd": 4096, "n_head": 16, "n_layer": 28, "n_positions": 2048, "vocab_size": 50400}
RULES = (Drop((r"^transformer\.h\.\d+\.attn\.(masked_)?bias$",)), Rename(r"^transformer\.", "model."))


def spec(config: Config) -> ArchSpec:
    eps = config.number("layer_norm_epsilon", 1e-5)
    given = {name: config.read(name, value) for name, value in DEFAULTS.items()}
    config = llama_names(config.replaced(**given, layer_norm_epsilon=eps))
    dim, heads = config.positive("hidden_size"), config.positive("n_head")
    rotated = config.count("rotary_dim", 0 if "rotary_dim" in config else 64) or dim // heads
    layer = LayerSpec(
        attention=attention(
            config,
            head_dim=dim // heads,
            kv_heads=heads,
            rope=plain_rope(rotated, 10000, traditional=True),
            o="out_proj",
        ),
        mlp=MlpSpec(hidden=4 * dim, act="gelu_approx", gate=None, up="fc_in", down="fc_out", bias=True),
        norms=Norms(pre_attn=layer_norm("ln_1", eps)),
        attn_key="attn",
        flow="parallel",
    )
    return gpt(config, layer, "model", HeadSpec(tied=False, bias=True), stem=StemSpec(key="model.wte"), rules=RULES)
