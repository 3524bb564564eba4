"""exaone_moe: sliding layers with a rope beside full ones without (a rope everywhere where none slides), norms on
query and key heads, grouped sigmoid routing in the layers that is_moe_layer names."""

from engine.graph.families.common import ArchSpec, Config, Drop, Rename, stacked
from engine.graph.families.glm4_moe import grouped_router

RULES = (Drop((r"^mtp\.",)), Rename(r"\.mlp\.e_score_correction_bias$", ".mlp.gate.e_score_correction_bias"))


def spec(config: Config) -> ArchSpec:
    config.choice("topk_method", ("noaux_tc",), "noaux_tc")
    sparse = config.moe(grouped_router(config, eps=1e-20), cast=True, shared="num_shared_experts")
    # A nested base goes before the flat one.
    nested = config.inner("rope_parameters").get("rope_theta") if config.get("rope_parameters") else None
    given = config.replaced(rope_theta=nested or config.get("rope_theta"))
    turned, windows = given.rope(config.positive("head_dim"), 1000000.0), config.window_layers()
    everywhere, feed = not any(windows), [sparse if r else config.mlp() for r in config.each("is_moe_layer")]
    attn = [config.attention(rope=turned if w or everywhere else None, qk_norm=config.qk_heads(), **w) for w in windows]
    return config.decoder(attn, feed, tied=config.tied(False), more_rules=(*RULES, *stacked("mlp", "switch_mlp")))
