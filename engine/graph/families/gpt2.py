"""gpt2: layer norms, learned positions instead of a rope, q, k and v in one matrix, a plain MLP; GPT's own names."""

from typing import Any

from engine.graph.families.common import ArchSpec, Config, HeadSpec, MlpSpec, StemSpec, layer_norm, layer_norms
from engine.graph.renames import UNTIE, Change, Drop, Rename

# Conv1D stores [in, out], in the hub's layout alone: its names have no "model.".
RULES = (
    Change(r"^(transformer\.)?h\.\d+\.(attn\.c_attn|attn\.c_proj|mlp\.c_fc|mlp\.c_proj)\.weight$", lambda w: w.T),
    Drop((r"^(transformer\.)?h\.\d+\.attn\.(masked_)?bias$",)),
    UNTIE,
    Rename(r"^(transformer\.|(?!model\.))", "model."),
)


def llama_names(config: Config) -> Config:
    """GPT's field names read into llama's."""
    dim, layers, heads = config.positive("n_embd"), config.positive("n_layer"), config.positive("n_head")
    return config.replaced(hidden_size=dim, num_hidden_layers=layers, num_attention_heads=heads, head_dim=dim // heads)


def gpt(config: Config, root: str, mlp: MlpSpec, tied: bool, kv_heads: int, bias: bool, rules: Any) -> ArchSpec:
    """A decoder of gpt2's kind with its names below `root`. bias: on attention's projections."""
    eps, positions = config.number("layer_norm_epsilon"), config.positive("n_positions")
    attn = config.attention(kv_heads=kv_heads, rope=None, qkv="c_attn", o="c_proj", bias=bias)
    names = {"attn_key": "attn", "norms": layer_norms(eps, "ln_1", "ln_2"), "norm": layer_norm(f"{root}.ln_f", eps)}
    stem = StemSpec(key=f"{root}.wte", positions=(f"{root}.wpe", positions))
    head = HeadSpec(tied=tied)
    return config.decoder(attn, mlp, stem=stem, head=head, layers_key=f"{root}.h", rules=rules, **names)


def plain_mlp(hidden: int, act: str, bias: bool) -> MlpSpec:
    """Without a gate, under gpt2's names."""
    return MlpSpec(hidden=hidden, act=act, gate=None, up="c_fc", down="c_proj", bias=bias)


def spec(config: Config) -> ArchSpec:
    config = llama_names(config)
    feed = plain_mlp(4 * config.positive("hidden_size"), "gelu_approx", True)
    return gpt(config, "model", feed, True, config.positive("n_head"), True, RULES)
