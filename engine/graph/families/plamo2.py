"""plamo2: state-space layers, one attention layer in each mamba_step of them, and plamo3's norms around both mixers."""

from dataclasses import replace
from typing import Any

from engine.graph.families.common import Config, plain_rope
from engine.graph.families.plamo3 import decoder
from engine.graph.renames import FILTERS
from engine.graph.spec import ArchSpec, NormSpec, QkNorm
from engine.graph.ssm import PlamoSsmSpec


def spec(config: Config) -> ArchSpec:
    head_dim, count = config.positive("hidden_size_per_head"), config.positive("num_hidden_layers")
    q, k = (NormSpec(key=key, eps=1e-6, kind="rms_heads") for key in ("q_weight", "k_weight"))
    rope = plain_rope(head_dim, 10000.0)
    attn = config.attention(head_dim=head_dim, qkv="qkv_proj", qk_norm=QkNorm(q=q, k=k), rope=rope)
    mixers: Any = attn
    if config.flag("mamba_enabled"):
        mamba = PlamoSsmSpec(
            heads=config.positive("mamba_num_heads"),
            head_dim=head_dim,
            state=config.positive("mamba_d_state"),
            rank=max(64, config.positive("hidden_size") // 16),
            width=config.positive("mamba_d_conv"),
            limits=(0.001, 100.0),
            eps=config.number("rms_norm_eps"),
        )
        step = config.positive("mamba_step", least=2)
        # The middle one of each mamba_step layers attends; too few for that, and the last one does.
        place = step // 2 if count > step // 2 else count - 1
        mixers = [attn if i % step == place else mamba for i in range(count)]
    made = decoder(config, mixers)
    return replace(made, rules=(FILTERS, *made.rules))
