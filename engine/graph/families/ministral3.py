"""ministral3: llama with its rope under rope_parameters, and queries that grow with their position."""

from engine.graph.families.common import Config, arch
from engine.graph.families.llama import layers
from engine.graph.renames import ROTARY, UNTIE, Drop, Float8Blocks
from engine.graph.spec import ArchSpec, QueryScale, RopeSpec


def spec(config: Config) -> ArchSpec:
    turning, heads = config.inner("rope_parameters"), config.positive("num_attention_heads")
    head_dim = config.positive("head_dim", config.positive("hidden_size") // heads)
    config = config.replaced(attention_bias=False, mlp_bias=False)
    grown = layers(
        config,
        rope=RopeSpec(
            dims=head_dim,
            base=turning.number("rope_theta"),
            scaling=dict(turning),
            max_positions=config.read("max_position_embeddings", None),
        ),
        query_scale=QueryScale(
            beta=turning.number("llama_4_scaling_beta"), length=turning.number("original_max_position_embeddings")
        ),
    )
    tied = config.flag("tie_word_embeddings", True)
    rules = (Float8Blocks(), Drop((r"activation_scale",)), ROTARY, *((UNTIE,) if tied else ()))
    return arch(config, grown, tied=tied, rules=rules)
