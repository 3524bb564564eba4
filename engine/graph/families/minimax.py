"""minimax (and minimax_m2): a norm over all query (key) heads together, a partial rope, a float32 sigmoid router."""

from engine.errors import InvalidValue
from engine.graph.families.common import Config, arch, attention, mlp, pre_norms, qk_heads, rope
from engine.graph.renames import ROTARY, Float8Blocks, stacked
from engine.graph.spec import ArchSpec, LayerSpec, MoeSpec, RouterSpec

EXPERT_NAMES = {"w1": "gate_proj", "w2": "down_proj", "w3": "up_proj"}


def spec(config: Config) -> ArchSpec:
    if config.read("scoring_func", "sigmoid") != "sigmoid":
        raise InvalidValue("config.json scoring_func", config["scoring_func"], "sigmoid")
    moe = MoeSpec(
        experts=config.positive("num_local_experts"),
        top_k=config.positive("num_experts_per_tok"),
        router=RouterSpec(
            float32_in=True,
            score="sigmoid",
            correction="e_score_correction_bias",
            normalise="sum",
            eps=1e-20,
            cast="input",
        ),
        expert=mlp(config),
    )
    layer = LayerSpec(
        attention=attention(
            config,
            rope=rope(config, config.positive("rotary_dim")),
            qk_norm=qk_heads(config, "flat") if config.flag("use_qk_norm", True) else None,
        ),
        mlp=moe,
        mlp_key="block_sparse_moe",
        norms=pre_norms(config),
    )
    rules = (ROTARY, Float8Blocks(), *stacked("block_sparse_moe", "switch_mlp", EXPERT_NAMES))
    return arch(config, layer, tied=config.flag("tie_word_embeddings", False), rules=rules)
