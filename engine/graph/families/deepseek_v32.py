"""deepseek_v32: deepseek_v3 whose attention sees only the keys that an indexer picks."""

from engine.graph.families import deepseek_v3
from engine.graph.families.common import Config
from engine.graph.families.glm4_moe import grouped_router
from engine.graph.indexed_tokens import IndexedTokensSpec
from engine.graph.latent import SplitHeads
from engine.graph.renames import DropLayers, Float8Blocks, stacked
from engine.graph.spec import ArchSpec


def spec(config: Config, pairs: bool = False) -> ArchSpec:
    """pairs: whether the indexer's rope turns pairs of neighbours where the config is silent."""
    config.choice("topk_method", ("noaux_tc",), "noaux_tc")
    config.choice("scoring_func", ("sigmoid",), "sigmoid")
    latent = deepseek_v3.latent(config, q_rank=config.positive("q_lora_rank"))
    attn = IndexedTokensSpec(
        latent=latent,
        heads=config.positive("index_n_heads"),
        dim=config.positive("index_head_dim"),
        top=config.positive("index_topk"),
        rope=config.rope(latent.turned, traditional=config.flag("indexer_rope_interleave", pairs)),
    )
    if attn.dim < latent.turned:
        raise config.invalid("index_head_dim", attn.dim, f"at least qk_rope_head_dim={latent.turned}")
    further = DropLayers(config.positive("num_hidden_layers"))
    rules = (further, Float8Blocks(), SplitHeads(latent), *stacked("mlp", "switch_mlp"))
    feed = deepseek_v3.mixture(config, grouped_router(config))
    return config.decoder(attn, feed, tied=False, more_rules=rules)
