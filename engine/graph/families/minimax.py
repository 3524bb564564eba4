"""minimax (and minimax_m2): a norm over all query (key) heads together, a partial rope, a float32 sigmoid router."""

from typing import Any

from engine.graph.families.common import ArchSpec, Config, Float8Blocks, RouterSpec, stacked

EXPERT_NAMES = {"w1": "gate_proj", "w2": "down_proj", "w3": "up_proj"}


def spec(config: Config) -> ArchSpec:
    score: Any = config.choice("scoring_func", ("sigmoid",), "sigmoid")
    weighed: dict[str, Any] = {"normalise": "sum", "eps": 1e-20, "cast": "input"}
    router = RouterSpec(float32_in=True, score=score, correction="e_score_correction_bias", **weighed)
    normed = config.qk_heads("flat") if config.flag("use_qk_norm", True) else None
    return config.decoder(
        config.attention(rope=config.rope(config.positive("rotary_dim")), qk_norm=normed),
        config.moe(router, experts="num_local_experts", hidden="intermediate_size"),
        mlp_key="block_sparse_moe",
        tied=config.tied(False),
        more_rules=(Float8Blocks(), *stacked("block_sparse_moe", "switch_mlp", EXPERT_NAMES)),
    )
