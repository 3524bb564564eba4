"""qwen3_5, qwen3_5_moe: qwen3_next with projections apart, as the text tower of a vision wrapper whose config is under
text_config or is the whole."""

from engine.graph.families.common import DEFAULTS, Config
from engine.graph.families.qwen3_moe import sparse_layers
from engine.graph.families.qwen3_next import RULES, delta, gated_attention, mixers, named, shared_moe
from engine.graph.families.towers import head_tied, text_tower
from engine.graph.renames import Rename, Split, halves
from engine.graph.spec import ArchSpec

_EXPERTS = (
    Split(
        r"(.*\.mlp)\.experts\.gate_up_proj",
        (r"\1.switch_mlp.gate_proj.weight", r"\1.switch_mlp.up_proj.weight"),
        halves(-2),
    ),
    Rename(r"\.experts\.down_proj$", ".switch_mlp.down_proj.weight"),
)


def text_config(config: Config) -> Config:
    """The text tower's fields with mlx-lm's defaults; a rope's base and part of a head are under rope_parameters."""
    text = head_tied(config, config.inner("text_config")) if "text_config" in config else config
    text = text.defaulted(DEFAULTS["qwen3_5"])
    text = text.replaced(head_dim=text.positive("head_dim", text.even_head_dim()))
    rope = text.inner("rope_parameters") if text.get("rope_parameters") else text
    given = {key: rope.get(key, text.get(key)) for key in ("rope_theta", "partial_rotary_factor")}
    return text.replaced(**{key: value for key, value in given.items() if value is not None})


def tower(config: Config) -> ArchSpec:
    """The decoder, without its wrapper."""
    attn = mixers(config, delta(config, "joined", config.number("rms_norm_eps")), gated_attention(config))
    made = sparse_layers(config, attn.__getitem__, shared_moe(config) if config.count("num_experts") else None)
    return config.arch(named(made), tied=config.flag("tie_word_embeddings"), more_rules=(*RULES, *_EXPERTS))


def spec(config: Config) -> ArchSpec:
    return text_tower(config, tower(text_config(config)))
