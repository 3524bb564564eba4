"""llama: pre-norms, grouped-query attention, gated MLP; sliding layers where layer_types says so."""

from typing import Any

from engine.errors import InvalidValue
from engine.graph.families.common import Config, arch, attention, mlp, pre_norms, sliding
from engine.graph.spec import ArchSpec, LayerSpec


def layers(config: Config, **changes: Any) -> list[Any]:
    """Llama's layers, one each; `changes` to their attention."""
    bias = config.flag("attention_bias", False)
    kinds = config.each("layer_types", ["full_attention"] * config.positive("num_hidden_layers"))
    for kind in kinds:
        if kind not in ("full_attention", "sliding_attention"):
            raise InvalidValue("config.json layer_types", kind, ("full_attention", "sliding_attention"))
    made = {}
    for kind in set(kinds):
        window = sliding(config) if kind == "sliding_attention" else {}
        attn = attention(config, **{"qkv_bias": bias, "out_bias": bias, **window, **changes})
        feed = mlp(config, bias=config.flag("mlp_bias", False))
        made[kind] = LayerSpec(attention=attn, mlp=feed, norms=pre_norms(config))
    return [made[kind] for kind in kinds]


def spec(config: Config) -> ArchSpec:
    return arch(config, layers(config))
