"""youtu_llm: latent attention that keeps every head's keys and values and dense MLPs."""

from engine.graph.families.common import DEFAULTS, Config
from engine.graph.families.deepseek_v3 import latent
from engine.graph.spec import ArchSpec


def spec(config: Config) -> ArchSpec:
    config = config.defaulted(DEFAULTS["youtu_llm"])
    attn = latent(config, kept="heads", eps=config.number("rms_norm_eps"))
    return config.arch(config.layers(attn, config.mlp(bias=config.flag("mlp_bias"))))
