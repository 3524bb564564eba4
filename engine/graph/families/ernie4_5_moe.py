"""ernie4_5_moe: a traditional rope, routed layers between two indices at an interval, scores in float32 to the sum."""

from typing import Any

from engine.errors import InvalidValue
from engine.graph.families.common import Config, arch, attention, mlp, plain_rope, pre_norms
from engine.graph.renames import ROTARY, Drop, stacked
from engine.graph.spec import ArchSpec, LayerSpec, MoeSpec, RouterSpec

UNREAD = Drop((r"mtp_(block|linear_proj|hidden_norm|emb_norm)\.", "e_score_correction_bias"))


def _edge(value: Any, pick: Any) -> int:
    """One index of a layer, of several (text and vision experts in the original)."""
    return int(pick(value)) if isinstance(value, (list, tuple)) else int(value)


def spec(config: Config) -> ArchSpec:
    bias, layers = config.flag("use_bias"), config.positive("num_hidden_layers")
    head_dim = config.count("head_dim", 0) or config.positive("hidden_size") // config.positive("num_attention_heads")
    traditional = plain_rope(head_dim, config.number("rope_theta"), traditional=True)
    attn = attention(config, head_dim=head_dim, rope=traditional, qkv_bias=bias, out_bias=bias)
    kinds = {"softmax": "softmax_float32", "sigmoid": "sigmoid_float32"}
    score = config.read("moe_gate_act", "softmax")
    if score not in kinds:
        raise InvalidValue("config.json moe_gate_act", score, kinds)
    hidden = config.count("moe_intermediate_size", 0) or config.positive("intermediate_size")
    shared = hidden * config.count("moe_num_shared_experts", 0)
    sparse = MoeSpec(
        experts=config.positive("moe_num_experts"),
        top_k=config.positive("moe_k", 1),
        router=RouterSpec(score=kinds[score], normalise="max", eps=1e-12),  # type: ignore[arg-type]
        expert=mlp(config, hidden=hidden, bias=bias),
        cast=True,
        shared=mlp(config, hidden=shared, bias=bias) if shared else None,
    )
    every = config.positive("moe_layer_interval", 1)
    first = _edge(config.read("moe_layer_start_index", 0), min)
    last = _edge(config.read("moe_layer_end_index", layers - 1), max)
    made = [
        LayerSpec(
            attention=attn,
            mlp=sparse if (i + 1) % every == 0 and first <= i <= last else mlp(config, bias=bias),
            norms=pre_norms(config),
        )
        for i in range(layers)
    ]
    tied = config.flag("tie_word_embeddings")
    return arch(config, made, tied=tied, rules=(ROTARY, UNREAD, *stacked("mlp", "switch_mlp")))
