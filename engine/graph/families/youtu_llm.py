"""youtu_llm: latent attention that keeps every head's keys and values, its scale untouched by yarn, and dense MLPs."""

from engine.graph.families.common import DEFAULTS, Config
from engine.graph.families.deepseek_v3 import latent
from engine.graph.spec import ArchSpec


def spec(config: Config) -> ArchSpec:
    config = config.defaulted(DEFAULTS["youtu_llm"])
    scale = (config.positive("qk_nope_head_dim") + config.positive("qk_rope_head_dim")) ** -0.5
    attn = latent(config, kept="heads", eps=config.number("rms_norm_eps"), scale=scale)
    return config.arch(config.layers(attn, config.mlp(bias=config.flag("mlp_bias"))))
