"""youtu_llm: latent attention that keeps every head's keys and values and dense MLPs."""

from engine.graph.families.common import ArchSpec, Config
from engine.graph.families.deepseek_v3 import latent


def spec(config: Config) -> ArchSpec:
    attn = latent(config, kept="heads", eps=config.number("rms_norm_eps"))
    return config.decoder(attn, config.mlp(bias=config.flag("mlp_bias")))
