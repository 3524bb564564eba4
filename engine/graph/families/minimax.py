"""minimax (and minimax_m2): a norm over all query (key) heads together, a partial rope, a float32 sigmoid router."""

from engine.graph.families.common import Config
from engine.graph.renames import Float8Blocks, stacked
from engine.graph.spec import ArchSpec, RouterSpec

EXPERT_NAMES = {"w1": "gate_proj", "w2": "down_proj", "w3": "up_proj"}


def spec(config: Config) -> ArchSpec:
    router = RouterSpec(
        float32_in=True,
        score=config.choice("scoring_func", ("sigmoid",), "sigmoid"),  # type: ignore[arg-type]
        correction="e_score_correction_bias",
        normalise="sum",
        eps=1e-20,
        cast="input",
    )
    normed = config.qk_heads("flat") if config.flag("use_qk_norm", True) else None
    made = config.layers(
        config.attention(rope=config.rope(config.positive("rotary_dim")), qk_norm=normed),
        config.moe(experts="num_local_experts", hidden="intermediate_size", router=router),
        mlp_key="block_sparse_moe",
    )
    rules = (Float8Blocks(), *stacked("block_sparse_moe", "switch_mlp", EXPERT_NAMES))
    return config.arch(made, tied=config.flag("tie_word_embeddings", False), more_rules=rules)
