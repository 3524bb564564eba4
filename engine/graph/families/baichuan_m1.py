"""baichuan_m1: keys and values mixed with those before, other heads in sliding layers, a head of unit rows."""

from typing import Any

import mlx.core as mx

from engine.graph.blurred import BlurredSpec
from engine.graph.families.common import ArchSpec, Change, Config


def unit_rows(head: mx.array) -> mx.array:
    """A head [V, D] over the norm of its rows; packed words stay (they were divided before they were packed)."""
    if not mx.issubdtype(head.dtype, mx.floating):
        return head
    wide = head.astype(mx.float32)
    return (wide / (mx.linalg.norm(wide, axis=-1, keepdims=True) + 1e-7)).astype(head.dtype)


def _mixer(config: Config, slides: bool) -> BlurredSpec:
    own = {f"num_{name}_heads": config.count(f"num_swa_{name}_heads", 0) for name in ("attention", "key_value")}
    config = config.replaced(**{key: heads for key, heads in own.items() if slides and heads})
    dim, heads = config.positive("hidden_size"), config.positive("num_attention_heads")
    if dim % heads:
        raise config.invalid("num_attention_heads", heads, f"a divisor of hidden_size={dim}")
    window: dict[str, Any] = config.sliding() if slides else {}
    rope = config.rope(dim // heads)
    return BlurredSpec(attention=config.attention(head_dim=dim // heads, rope=rope, qkv="W_pack", **window))


def spec(config: Config) -> ArchSpec:
    slides = config.holding("sliding_window_layers", list)
    if config.positive("conv_window") != 2:
        raise config.invalid("conv_window", config["conv_window"], "2")
    return config.decoder(
        lambda i: _mixer(config, i in slides),
        config.mlp(),
        tied=config.tied(False),
        more_rules=(Change(r"^lm_head\.weight$", unit_rows),),
    )
