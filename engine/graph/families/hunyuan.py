"""hunyuan: a rope with an enlarged base before the norms on queries and keys; layers may share their projections."""

from dataclasses import replace
from functools import partial
from typing import Any

import mlx.core as mx

from engine.errors import InvalidValue
from engine.graph.families.common import Config, arch, attention, even_head_dim, mlp, pre_norms, qk_heads
from engine.graph.renames import ROTARY, Split, halves, stacked
from engine.graph.spec import ArchSpec, LayerSpec, MlpSpec, MoeSpec, RopeSpec, RouterSpec


def _of(value: Any, layer: int) -> int:
    """A number for all layers, or one each."""
    return int(value[layer] if isinstance(value, (list, tuple)) else value)


def by_head(kv_heads: int, head_dim: int, array: mx.array) -> list[mx.array]:
    """Rows of, for each key/value head, its queries, its key and its value: q, k and v."""
    rows = array.reshape(kv_heads, -1, head_dim, array.shape[-1])  # [K, H/K + 2, E, D]
    return [mx.flatten(part, 0, 2) for part in (rows[:, :-2], rows[:, -2:-1], rows[:, -1:])]


def mixture(config: Config, layer: int) -> MoeSpec | MlpSpec:
    experts, hidden = config.positive("num_experts"), config.positive("intermediate_size")
    if experts == 1:
        return mlp(config)
    shared = None
    if config.flag("use_mixed_mlp_moe"):
        shared = mlp(config, hidden=int(hidden * _of(config.read("num_shared_expert"), layer)))
    return MoeSpec(
        experts=experts,
        top_k=_of(config.read("moe_topk"), layer),
        router=RouterSpec(key="gate.wg", score="softmax"),
        expert=mlp(config, hidden=_of(config.read("moe_intermediate_size", hidden), layer)),
        cast=True,
        scores_float32=True,
        shared=shared,
        shared_at="shared_mlp",
    )


def spec(config: Config) -> ArchSpec:
    bias, head_dim = config.flag("attention_bias"), even_head_dim(config)
    scaling = config.inner("rope_scaling")
    if scaling.read("type") not in ("dynamic", "default") or scaling.number("factor") != 1:
        raise InvalidValue("config.json rope_scaling", config["rope_scaling"], "type dynamic with alpha and factor 1")
    turn = {"type": "ntk-alpha", "alpha": scaling.number("alpha")}
    attn = attention(
        config,
        head_dim=head_dim,
        rope=RopeSpec(dims=head_dim, base=config.number("rope_theta"), scaling=turn),
        qkv_bias=bias,
        out_bias=bias,
        qk_norm=qk_heads(config, "rotated", "query_layernorm", "key_layernorm") if config.flag("use_qk_norm") else None,
    )
    share = config.positive("cla_share_factor") if config.flag("use_cla") else 1
    layers = []
    for i in range(config.positive("num_hidden_layers")):
        projection = None if share == 1 else "taken" if i % share else "given"
        own = replace(attn, projection=projection)  # type: ignore[arg-type]
        layers.append(LayerSpec(attention=own, mlp=mixture(config, i), norms=pre_norms(config)))
    rules = (
        ROTARY,
        Split(
            r"(.*\.)qkv_proj\.weight",
            (r"\1q_proj.weight", r"\1k_proj.weight", r"\1v_proj.weight"),
            partial(by_head, attn.kv_heads, head_dim),
        ),
        Split(r"(.*\.)gate_and_up_proj\.weight", (r"\1up_proj.weight", r"\1gate_proj.weight"), halves(axis=0)),
        *stacked("mlp", "switch_mlp"),
    )
    return arch(config, layers, tied=True, rules=rules)
