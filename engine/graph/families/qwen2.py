"""qwen2: llama with biases on q, k and v; the head dimension is always hidden_size / heads."""

from __future__ import annotations

from engine.graph.families.common import Config, arch, attention, positive, rope
from engine.graph.spec import ArchSpec


def spec(config: Config) -> ArchSpec:
    head_dim = positive(config, "hidden_size") // positive(config, "num_attention_heads")
    return arch(config, attention(config, head_dim=head_dim, rope=rope(config, head_dim, 1000000.0), qkv_bias=True))
