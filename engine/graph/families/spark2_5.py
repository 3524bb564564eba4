"""spark2_5: fused q, k, v, a sigmoid gate per head in float32, an exact gelu, a rope per layer kind."""

from engine.errors import InvalidValue
from engine.graph.families.common import Config, arch, attention, mlp, plain_rope, pre_norms, sliding
from engine.graph.renames import ROTARY, UNTIE, Rename
from engine.graph.spec import ArchSpec, GateSpec, LayerSpec, RopeSpec, StemSpec

_FIXED = {"hidden_act": "gelu", "gate_attn_act_mode": "sigmoid", "headwise_attn_output_gate": True}


def spec(config: Config) -> ArchSpec:
    config = config.defaulted({"rms_norm_eps": 1e-6})
    for key, value in _FIXED.items():
        if config.read(key, value) != value:
            raise InvalidValue(f"config.json {key}", config[key], repr(value))
    count, bias = config.positive("num_hidden_layers"), config.flag("attention_bias", False)
    ropes = config.inner("rope_parameters")

    def layer(kind: str) -> LayerSpec:
        if kind not in ("full_attention", "sliding_attention"):
            raise InvalidValue("config.json layer_types", kind, ("full_attention", "sliding_attention"))
        attn = attention(
            config,
            rope=_rope(ropes.inner(kind), config.positive("head_dim")),
            qkv="q_k_v_proj",
            o="out_proj",
            qkv_bias=bias,
            out_bias=bias,
            gate=GateSpec(key="g_proj", per_head=True, float32=True, bias=bias),
            **(sliding(config) if kind == "sliding_attention" else {}),
        )
        feed = mlp(config, act="gelu", bias=config.flag("mlp_bias", False))
        return LayerSpec(attention=attn, mlp=feed, norms=pre_norms(config))

    kinds = config.each("layer_types", ((["sliding_attention"] * 3 + ["full_attention"]) * count)[:count])
    made = {kind: layer(kind) for kind in set(kinds)}
    tied = config.flag("tie_word_embeddings", True)
    rules = (Rename(r"^model\.embed_tokens\.", "model.embedding."), ROTARY, *((UNTIE,) if tied else ()))
    stem = StemSpec(key="model.embedding")
    return arch(config, [made[kind] for kind in kinds], tied=tied, stem=stem, rules=rules)


def _rope(config: Config, head_dim: int) -> RopeSpec:
    dims = int(head_dim * config.number("partial_rotary_factor", 1.0))
    if not 0 < dims <= head_dim or dims % 2:
        raise InvalidValue(f"config.json {config.path}partial_rotary_factor", dims, f"an even part of {head_dim}")
    return plain_rope(dims, config.number("rope_theta", 10000.0))
