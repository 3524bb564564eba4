"""gpt2: layer norms, learned positions instead of a rope, q, k and v in one matrix, a plain MLP; GPT's own names."""

from typing import Any

from engine.graph.families.common import Config, arch, attention, layer_norm
from engine.graph.renames import Change, Drop, Rename
from engine.graph.spec import ArchSpec, HeadSpec, LayerSpec, MlpSpec, Norms, StemSpec

# Conv1D stores [in, out]; it does so only in the hub's layout, whose names have no "model.".
RULES = (
    Change(r"^(transformer\.)?h\.\d+\.(attn\.c_attn|attn\.c_proj|mlp\.c_fc|mlp\.c_proj)\.weight$", lambda w: w.T),
    Drop((r"^(transformer\.)?h\.\d+\.attn\.(masked_)?bias$", r"^lm_head\.weight$")),
    Rename(r"^(transformer\.|(?!model\.))", "model."),
)


def llama_names(config: Config) -> Config:
    """The same config with GPT's field names read into llama's."""
    return config.replaced(
        hidden_size=config.positive("n_embd"),
        num_hidden_layers=config.positive("n_layer"),
        num_attention_heads=config.positive("n_head"),
    )


def layer(config: Config, mlp: MlpSpec, **changes: Any) -> LayerSpec:
    """GPT's layer, with `changes` to its attention."""
    fields = {"rope": None, "qkv": "c_attn", "o": "c_proj", "qkv_bias": True, "out_bias": True, **changes}
    eps = config.number("layer_norm_epsilon")
    return LayerSpec(
        attention=attention(config, **fields),
        mlp=mlp,
        norms=Norms(pre_attn=layer_norm("ln_1", eps), pre_mlp=layer_norm("ln_2", eps)),
        attn_key="attn",
    )


def gpt(config: Config, layer_spec: LayerSpec, root: str, head: HeadSpec, **changes: Any) -> ArchSpec:
    """A decoder with GPT's names below `root`."""
    fields: dict[str, Any] = {
        "stem": StemSpec(key=f"{root}.wte", positions=(f"{root}.wpe", config.positive("n_positions"))),
        "norm": layer_norm(f"{root}.ln_f", config.number("layer_norm_epsilon")),
        "layers_key": f"{root}.h",
        "rules": (),
    }
    return arch(config, layer_spec, tied=head.tied is True, head=head, **{**fields, **changes})


def spec(config: Config) -> ArchSpec:
    config = llama_names(config)
    width = 4 * config.positive("hidden_size")
    mlp = MlpSpec(hidden=width, act="gelu_approx", gate=None, up="c_fc", down="c_proj", bias=True)
    head_dim, heads = config.positive("hidden_size") // config.positive("n_head"), config.positive("n_head")
    made = layer(config, mlp, head_dim=head_dim, kv_heads=heads)
    return gpt(config, made, "model", HeadSpec(tied=True), rules=RULES)
