"""ministral3: llama with its rope under rope_parameters, and queries that grow with their position."""

from engine.graph.families import llama
from engine.graph.families.common import Config
from engine.graph.renames import Drop, Float8Blocks
from engine.graph.spec import ArchSpec, QueryScale, RopeSpec


def spec(config: Config) -> ArchSpec:
    turning, heads = config.inner("rope_parameters"), config.positive("num_attention_heads")
    rope = RopeSpec(
        dims=config.positive("head_dim", config.positive("hidden_size") // heads),
        base=turning.number("rope_theta"),
        scaling=dict(turning),
        max_positions=config.read("max_position_embeddings", None),
    )
    beta, length = turning.number("llama_4_scaling_beta"), turning.number("original_max_position_embeddings")
    plain = config.replaced(attention_bias=False, mlp_bias=False)
    grown = llama.layers(plain, rope=rope, query_scale=QueryScale(beta=beta, length=length))
    return config.arch(grown, more_rules=(Float8Blocks(), Drop((r"activation_scale",))))
