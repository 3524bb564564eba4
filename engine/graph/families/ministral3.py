"""ministral3: llama with its rope under rope_parameters, and queries that grow with their position."""

from engine.graph.families import llama
from engine.graph.families.common import ArchSpec, Config, Drop, Float8Blocks, RopeSpec
from engine.graph.spec import QueryScale


def spec(config: Config) -> ArchSpec:
    turning, limit = config.inner("rope_parameters"), config.read("max_position_embeddings", None)
    head_dim, base = config.positive("head_dim", config.even_head_dim()), turning.number("rope_theta")
    rope = RopeSpec(dims=head_dim, base=base, scaling=dict(turning), max_positions=limit)
    beta, length = turning.number("llama_4_scaling_beta"), turning.number("original_max_position_embeddings")
    plain = config.replaced(attention_bias=False, mlp_bias=False)
    grown = llama.layers(plain, rope=rope, query_scale=QueryScale(beta=beta, length=length))
    return config.arch(grown, more_rules=(Float8Blocks(), Drop((r"activation_scale",))))
