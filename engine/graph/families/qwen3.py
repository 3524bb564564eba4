"""qwen3: llama with a norm on each query and key head."""

from __future__ import annotations

from engine.graph.families.common import Config, arch, attention, positive, read, rope
from engine.graph.spec import ArchSpec


def spec(config: Config) -> ArchSpec:
    head_dim = positive(config, "head_dim")
    read(config, "tie_word_embeddings")
    return arch(config, attention(config, rope=rope(config, head_dim, None), qk_norm="head"))
