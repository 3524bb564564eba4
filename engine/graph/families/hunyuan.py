"""hunyuan: a rope with an enlarged base before the norms on queries and keys; layers may share their projections."""

from dataclasses import replace
from functools import partial

import mlx.core as mx

from engine.graph.families.common import ArchSpec, Config, MlpSpec, MoeSpec, RopeSpec, RouterSpec
from engine.graph.renames import Split, halves, stacked


def by_head(kv_heads: int, head_dim: int, array: mx.array) -> list[mx.array]:
    """Rows of, for each key/value head, its queries, its key and its value: q, k and v."""
    rows = array.reshape(kv_heads, -1, head_dim, array.shape[-1])  # [K, H/K + 2, E, D]
    return [mx.flatten(part, 0, 2) for part in (rows[:, :-2], rows[:, -2:-1], rows[:, -1:])]


def mixture(config: Config, layer: int) -> MoeSpec | MlpSpec:
    if config.positive("num_experts") == 1:
        return config.mlp()
    at = config.of_layer(layer, "moe_topk", "num_shared_expert", "moe_intermediate_size")
    width, router = config.positive("intermediate_size"), RouterSpec(key="gate.wg", score="softmax")
    shared = config.mlp(hidden=width * at.positive("num_shared_expert")) if at.flag("use_mixed_mlp_moe") else None
    fields = {"shared": shared, "shared_at": "shared_mlp", "cast": True, "scores_float32": True}
    return at.moe(router, top_k="moe_topk", hidden=at.positive("moe_intermediate_size", width), **fields)


def spec(config: Config) -> ArchSpec:
    head_dim, scaling = config.even_head_dim(), config.inner("rope_scaling")
    if scaling.number("factor") != 1:
        raise scaling.invalid("factor", scaling["factor"], "1: only alpha enlarges the base")
    scaling.choice("type", ("dynamic", "default"))
    turn = {"type": "ntk-alpha", "alpha": scaling.number("alpha")}
    rope = RopeSpec(dims=head_dim, base=config.number("rope_theta"), scaling=turn)
    normed = config.qk_heads("rotated", "query_layernorm", "key_layernorm") if config.flag("use_qk_norm") else None
    attn = config.attention(head_dim=head_dim, rope=rope, bias=config.flag("attention_bias"), qk_norm=normed)
    given, taken = replace(attn, projection="given"), replace(attn, projection="taken")
    share = config.positive("cla_share_factor") if config.flag("use_cla") else 1
    apart = (r"\1q_proj.weight", r"\1k_proj.weight", r"\1v_proj.weight")
    rules = (
        Split(r"(.*\.)qkv_proj\.weight", apart, partial(by_head, attn.kv_heads, head_dim)),
        Split(r"(.*\.)gate_and_up_proj\.weight", (r"\1up_proj.weight", r"\1gate_proj.weight"), halves(axis=0)),
        *stacked("mlp", "switch_mlp"),
    )
    made = config.layers(lambda i: attn if share == 1 else taken if i % share else given, partial(mixture, config))
    return config.arch(made, tied=True, more_rules=rules)
