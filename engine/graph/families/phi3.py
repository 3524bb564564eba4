"""phi3: llama with q, k and v, and gate and up, in one matrix each; a rope with long factors on part of a head."""

from dataclasses import replace

from engine.graph.families.common import ArchSpec, Config, RopeSpec


def _rope(config: Config, head_dim: int) -> RopeSpec:
    """Linear, or longrope (once "su") with the trained length outside of rope_scaling (register:
    "linear-rope-refused")."""
    made = config.rope(int(head_dim * config.number("partial_rotary_factor")))
    if made.kind in ("longrope", "su"):
        trained = config.positive("original_max_position_embeddings")
        long = {key: made.scaling[key] for key in ("long_factor",) if key in made.scaling}
        scaling = {"type": "longrope", "original_max_position_embeddings": trained, **long}
        return replace(made, scaling=scaling, traditional=False)
    if made.kind not in ("default", "linear"):
        raise config.invalid("rope_scaling type", made.kind, ("longrope", "su", "linear"))
    return made


def spec(config: Config) -> ArchSpec:
    head_dim = config.even_head_dim()
    attn = config.attention(head_dim=head_dim, rope=_rope(config, head_dim), qkv="qkv_proj")
    return config.decoder(attn, config.mlp(up="gate_up_proj", fused=True))
