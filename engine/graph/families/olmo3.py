"""olmo3: olmo2 with sliding layers, three of four unless layer_types says otherwise; only global layers scale their
rope."""

from engine.graph.families.common import ArchSpec, Config, plain_rope
from engine.graph.families.olmo2 import post_norms


def spec(config: Config) -> ArchSpec:
    head_dim, bias = config.positive("head_dim", config.even_head_dim()), config.flag("attention_bias", False)
    ropes = {True: plain_rope(head_dim, config.rope_base()), False: config.rope(head_dim, None)}
    fields = {"head_dim": head_dim, "bias": bias, "qk_norm": config.qk_heads("flat")}
    windows = config.window_layers(config.full_every(4))
    attn = [config.attention(rope=ropes[bool(window)], **fields, **window) for window in windows]
    return config.decoder(attn, config.mlp(), norms=post_norms(config), tied=config.tied(False))
