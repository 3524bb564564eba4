"""phi3: llama with q, k and v, and gate and up, in one matrix each; a rope with long factors on part of a head."""

from typing import Any

from engine.errors import InvalidValue
from engine.graph.families.common import Config, arch, attention, mlp, pre_norms
from engine.graph.spec import ArchSpec, LayerSpec, RopeSpec


def _rope(config: Config, head_dim: int) -> RopeSpec:
    """Linear, or longrope (once "su") with the trained length outside of rope_scaling."""
    scaling = dict(config.read("rope_scaling", {}))
    kind = scaling.get("type") or scaling.get("rope_type", "default")
    fields: dict[str, Any] = {
        "dims": int(head_dim * config.number("partial_rotary_factor", 1.0)),
        "base": config.number("rope_theta", 10000.0),
    }
    if kind in ("longrope", "su"):
        trained = config.positive("original_max_position_embeddings", 4096)
        factors = {"type": "longrope", "original_max_position_embeddings": trained}
        if "long_factor" in scaling:
            factors["long_factor"] = scaling["long_factor"]
        limit = config.positive("max_position_embeddings", 131072)
        return RopeSpec(**fields, scaling=factors, max_positions=limit)
    if kind not in ("default", "linear"):
        raise InvalidValue("config.json rope_scaling type", kind, ("longrope", "su", "linear"))
    return RopeSpec(**fields, scaling=scaling, traditional=config.flag("rope_traditional", False))


def spec(config: Config) -> ArchSpec:
    head_dim = config.positive("hidden_size") // config.positive("num_attention_heads")
    layer = LayerSpec(
        attention=attention(config, head_dim=head_dim, rope=_rope(config, head_dim), qkv="qkv_proj"),
        mlp=mlp(config, up="gate_up_proj", fused=True),
        norms=pre_norms(config),
    )
    return arch(config, layer, tied=config.flag("tie_word_embeddings", False))
