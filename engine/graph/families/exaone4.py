"""exaone4: norms after the mixers and on heads; a pattern of letters L and G makes layers sliding, or global without
rope."""

from typing import Any

from engine.graph.families.common import ArchSpec, AttentionSpec, Config
from engine.graph.families.olmo2 import post_norms


def spec(config: Config) -> ArchSpec:
    pattern, head_dim = config.read("sliding_window_pattern", ""), config.positive("head_dim")
    if pattern and (not isinstance(pattern, str) or set(pattern) != {"L", "G"}):
        raise config.invalid("sliding_window_pattern", pattern, "null, or a string of the letters L and G")

    def attn(i: int) -> AttentionSpec:
        changes: dict[str, Any] = {"qk_norm": config.qk_heads(), "rope": config.rope(head_dim, None)}
        if pattern:
            changes |= config.sliding() if pattern[i % len(pattern)] == "L" else {"rope": None}
        return config.attention(**changes)

    return config.decoder(attn, config.mlp(), norms=post_norms(config), tied=config.tied())
