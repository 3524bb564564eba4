"""qwen3_5, qwen3_5_moe: qwen3_next with its projections apart, as the text tower of a vision wrapper whose config is
under text_config or is the whole."""

from engine.graph.families.common import DEFAULTS, ArchSpec, Config, Rename, Split, halves
from engine.graph.families.qwen3_next import hybrid
from engine.graph.families.towers import head_tied, text_tower

_EXPERTS = (
    Split(
        r"(.*\.mlp)\.experts\.gate_up_proj",
        (r"\1.switch_mlp.gate_proj.weight", r"\1.switch_mlp.up_proj.weight"),
        halves(-2),
    ),
    Rename(r"\.experts\.down_proj$", ".switch_mlp.down_proj.weight"),
)


def tower(config: Config) -> ArchSpec:
    """The decoder without its wrapper; a rope's base and part of a head are under rope_parameters, or at the top."""
    text = head_tied(config, config.inner("text_config")) if "text_config" in config else config
    text = text.defaulted(DEFAULTS["qwen3_5"])
    text = text.replaced(head_dim=text.positive("head_dim", text.even_head_dim()))
    rope = text.inner("rope_parameters") if text.get("rope_parameters") else text
    given = {key: rope.get(key) for key in ("rope_theta", "partial_rotary_factor")}
    return hybrid(text.replaced(**{k: v for k, v in given.items() if v is not None}), "joined", *_EXPERTS)


def spec(config: Config) -> ArchSpec:
    return text_tower(config, tower(config))
