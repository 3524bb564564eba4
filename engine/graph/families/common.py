"""What families share: typed reading of config.json, and the llama-like default of every field."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from engine.errors import InvalidValue, UnsupportedConfig
from engine.graph.spec import ArchSpec, AttentionSpec, LayerSpec, MlpSpec, Norms, RopeSpec

Config = Mapping[str, Any]
_MISSING = object()

PRE_NORMS = Norms(pre_attn="input_layernorm", pre_mlp="post_attention_layernorm")
ROTARY_BUFFERS = ("rotary_emb.inv_freq",)


def read(config: Config, key: str, default: object = _MISSING) -> Any:
    """config[key]; null counts as absent. A missing required key is `InvalidValue`."""
    value = config.get(key)
    if value is not None:
        return value
    if default is _MISSING:
        raise InvalidValue(f"config.json {key}", None, f"a value (model_type {config.get('model_type')!r} needs it)")
    return default


def positive(config: Config, key: str, default: object = _MISSING) -> int:
    """A positive integer field."""
    value = read(config, key, default)
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise InvalidValue(f"config.json {key}", value, "an integer >= 1")
    return value


def number(config: Config, key: str, default: object = _MISSING) -> float:
    """A finite number above 0."""
    value = read(config, key, default)
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value < math.inf:
        raise InvalidValue(f"config.json {key}", value, "a finite number > 0")
    return value


def rope(config: Config, dims: int, theta: object = 10000.0, traditional: bool = False) -> RopeSpec:
    """Rope from rope_theta and rope_scaling, or from transformers 5's nested rope_parameters."""
    given = config.get("rope_parameters") or {}
    nested = given if isinstance(given, Mapping) else {}
    base = read(config, "rope_theta", nested.get("rope_theta", theta))
    base = number({"rope_theta": base}, "rope_theta")
    for key in ("rope_scaling", "rope_parameters"):
        if not isinstance(config.get(key) or {}, Mapping):
            raise InvalidValue(f"config.json {key}", config[key], "an object or null")
    return RopeSpec(
        dims=dims,
        base=base,
        traditional=bool(read(config, "rope_traditional", traditional)),
        scaling=read(config, "rope_scaling", nested),
        max_positions=read(config, "max_position_embeddings", None),
    )


def attention(config: Config, **changes: Any) -> AttentionSpec:
    """Llama's attention fields, with `changes` on top."""
    heads = positive(config, "num_attention_heads")
    head_dim = changes.pop("head_dim", None) or positive(config, "head_dim", positive(config, "hidden_size") // heads)
    kv_heads = positive(config, "num_key_value_heads", heads)
    if heads % kv_heads:
        raise InvalidValue("config.json num_key_value_heads", kv_heads, f"a divisor of num_attention_heads={heads}")
    fields: dict[str, Any] = {
        "heads": heads,
        "kv_heads": kv_heads,
        "head_dim": head_dim,
        "scale": head_dim**-0.5,
        "rope": changes.pop("rope", None) or rope(config, head_dim),
    }
    return AttentionSpec(**{**fields, **changes})


def arch(
    config: Config,
    attn: AttentionSpec,
    *,
    norms: Norms = PRE_NORMS,
    mlp: MlpSpec | None = None,
    tied: bool | None = None,
    **changes: Any,
) -> ArchSpec:
    """A decoder whose layers are all alike. `tied`: fixed by the family, or None to follow tie_word_embeddings."""
    if "sliding_attention" in (config.get("layer_types") or ()):
        raise UnsupportedConfig(f"layer_types with sliding_attention in {config['model_type']}; known: full_attention")
    layer = LayerSpec(attention=attn, mlp=mlp or MlpSpec(hidden=positive(config, "intermediate_size")), norms=norms)
    fields: dict[str, Any] = {
        "family": config["model_type"],
        "vocab": positive(config, "vocab_size"),
        "dim": positive(config, "hidden_size"),
        "layers": (layer,) * positive(config, "num_hidden_layers"),
        "norm_eps": number(config, "rms_norm_eps"),
        "tied": bool(read(config, "tie_word_embeddings", True)) if tied is None else tied,
        "dropped": ROTARY_BUFFERS,
    }
    fields.update(changes)
    if fields["tied"] and changes.get("dropped") is None:
        fields["dropped"] = (*fields["dropped"], "lm_head.weight")
    return ArchSpec(**fields)
