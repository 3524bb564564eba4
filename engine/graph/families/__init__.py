"""Families: config.json's model_type -> the function that turns a config into an `ArchSpec`."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from engine.errors import UnknownField

if TYPE_CHECKING:
    from engine.graph.families.common import Config
    from engine.graph.spec import ArchSpec

FAMILIES: dict[str, str] = {
    "Klear": "engine.graph.families.klear:spec",
    "afm7": "engine.graph.families.afm7:spec",
    "afmoe": "engine.graph.families.afmoe:spec",
    "apertus": "engine.graph.families.apertus:spec",
    "baichuan_m1": "engine.graph.families.baichuan_m1:spec",
    "bailing_hybrid": "engine.graph.families.bailing_hybrid:spec",
    "bailing_moe": "engine.graph.families.bailing_moe:spec",
    "bailing_moe_linear": "engine.graph.families.bailing_moe_linear:spec",
    "bailing_moe_v3": "engine.graph.families.bailing_moe_v3:spec",
    "bitnet": "engine.graph.families.refused:metal_only",
    "cohere": "engine.graph.families.cohere:spec",
    "cohere2": "engine.graph.families.cohere2:spec",
    "dbrx": "engine.graph.families.dbrx:spec",
    "deepseek": "engine.graph.families.deepseek:spec",
    "deepseek_v2": "engine.graph.families.deepseek_v2:spec",
    "deepseek_v3": "engine.graph.families.deepseek_v3:spec",
    "deepseek_v32": "engine.graph.families.deepseek_v32:spec",
    "deepseek_v41": "engine.graph.families.deepseek_v41:spec",
    "deepseek_v41_text": "engine.graph.families.deepseek_v41:spec",
    "dots1": "engine.graph.families.dots1:spec",
    "ernie4_5": "engine.graph.families.ernie4_5:spec",
    "ernie4_5_moe": "engine.graph.families.ernie4_5_moe:spec",
    "exaone": "engine.graph.families.exaone:spec",
    "exaone4": "engine.graph.families.exaone4:spec",
    "exaone_moe": "engine.graph.families.exaone_moe:spec",
    "falcon_h1": "engine.graph.families.falcon_h1:spec",
    "falcon_mamba": "engine.graph.families.mamba:spec",
    "gear": "engine.graph.families.gear:spec",
    "gemma": "engine.graph.families.gemma:spec",
    "gemma2": "engine.graph.families.gemma2:spec",
    "gemma3": "engine.graph.families.towers:gemma3",
    "gemma3_text": "engine.graph.families.gemma3_text:spec",
    "gemma3n": "engine.graph.families.gemma3n:spec",
    "gemma4": "engine.graph.families.towers:gemma4",
    "gemma4_text": "engine.graph.families.gemma4_text:spec",
    "gemma4_unified": "engine.graph.families.towers:gemma4",
    "glm": "engine.graph.families.glm:spec",
    "glm4": "engine.graph.families.glm4:spec",
    "glm4_moe": "engine.graph.families.glm4_moe:spec",
    "glm4_moe_lite": "engine.graph.families.glm4_moe_lite:spec",
    "glm_moe_dsa": "engine.graph.families.glm_moe_dsa:spec",
    "gpt2": "engine.graph.families.gpt2:spec",
    "gpt_bigcode": "engine.graph.families.gpt_bigcode:spec",
    "gpt_neox": "engine.graph.families.gpt_neox:spec",
    "gpt_oss": "engine.graph.families.gpt_oss:spec",
    "gptj": "engine.graph.families.gptj:spec",
    "granite": "engine.graph.families.granite:spec",
    "granitemoe": "engine.graph.families.granitemoe:spec",
    "granitemoehybrid": "engine.graph.families.granitemoehybrid:spec",
    "helium": "engine.graph.families.helium:spec",
    "hunyuan": "engine.graph.families.hunyuan:spec",
    "hunyuan_v1_dense": "engine.graph.families.hunyuan_v1_dense:spec",
    "internlm2": "engine.graph.families.internlm2:spec",
    "internlm3": "engine.graph.families.internlm3:spec",
    "iquestcoder": "engine.graph.families.llama:spec",
    "iquestloopcoder": "engine.graph.families.iquestloopcoder:spec",
    "jamba": "engine.graph.families.jamba:spec",
    "kimi_k3": "engine.graph.families.kimi_k3:spec",
    "kimi_linear": "engine.graph.families.kimi_linear:spec",
    "joyai_llm_flash": "engine.graph.families.deepseek_v3:spec",
    "kimi_k2": "engine.graph.families.deepseek_v3:spec",
    "kimi_k25": "engine.graph.families.kimi_vl:spec",
    "kimi_vl": "engine.graph.families.kimi_vl:spec",
    "laguna": "engine.graph.families.laguna:spec",
    "lfm2": "engine.graph.families.lfm2:spec",
    "lfm2-vl": "engine.graph.families.lfm2:vision",
    "lfm2_moe": "engine.graph.families.lfm2_moe:spec",
    "lille-130m": "engine.graph.families.lille:spec",
    "llama": "engine.graph.families.llama:spec",
    "llama4": "engine.graph.families.llama4:spec",
    "llama4_text": "engine.graph.families.llama4_text:spec",
    "llava": "engine.graph.families.towers:mistral3",
    "mamba": "engine.graph.families.mamba:spec",
    "mamba2": "engine.graph.families.mamba2:spec",
    "longcat_flash": "engine.graph.families.longcat_flash:spec",
    "longcat_flash_ngram": "engine.graph.families.longcat_flash:ngram",
    "mellum": "engine.graph.families.mellum:spec",
    "mimo": "engine.graph.families.mimo:spec",
    "mimo_v2_flash": "engine.graph.families.mimo_v2_flash:spec",
    "minicpm": "engine.graph.families.minicpm:spec",
    "minicpm3": "engine.graph.families.minicpm3:spec",
    "minimax": "engine.graph.families.minimax:spec",
    "minimax_m2": "engine.graph.families.minimax:spec",
    "minimax_m3_vl": "engine.graph.families.minimax_m3_vl:spec",
    "ministral3": "engine.graph.families.ministral3:spec",
    "mistral": "engine.graph.families.llama:spec",
    "mistral3": "engine.graph.families.towers:mistral3",
    "mistral4": "engine.graph.families.mistral4:spec",
    "mixtral": "engine.graph.families.mixtral:spec",
    "muse_glimmer": "engine.graph.families.muse_glimmer:spec",
    "muse_spark": "engine.graph.families.refused:metal_only",
    "nanbeige": "engine.graph.families.nanbeige:spec",
    "nanochat": "engine.graph.families.nanochat:spec",
    "nemotron": "engine.graph.families.nemotron:spec",
    "nemotron-nas": "engine.graph.families.nemotron_nas:spec",
    "nemotron_h": "engine.graph.families.nemotron_h:spec",
    "olmo": "engine.graph.families.refused:olmo",
    "olmo2": "engine.graph.families.olmo2:spec",
    "olmo3": "engine.graph.families.olmo3:spec",
    "olmo_hybrid": "engine.graph.families.olmo_hybrid:spec",
    "olmoe": "engine.graph.families.olmoe:spec",
    "openelm": "engine.graph.families.openelm:spec",
    "phi": "engine.graph.families.phi:spec",
    "phi-msft": "engine.graph.families.phixtral:spec",
    "phi3": "engine.graph.families.phi3:spec",
    "phi3small": "engine.graph.families.phi3small:spec",
    "phimoe": "engine.graph.families.phimoe:spec",
    "phixtral": "engine.graph.families.phixtral:spec",
    "pixtral": "engine.graph.families.towers:pixtral",
    "plamo": "engine.graph.families.plamo:spec",
    "plamo2": "engine.graph.families.plamo2:spec",
    "plamo3": "engine.graph.families.plamo3:spec",
    "prism_hadamard_qwen35": "engine.graph.families.prism_hadamard_qwen35:spec",
    "qwen": "engine.graph.families.qwen:spec",
    "qwen2": "engine.graph.families.qwen2:spec",
    "qwen2_5_vl": "engine.graph.families.towers:qwen2_vl",
    "qwen2_moe": "engine.graph.families.qwen2_moe:spec",
    "qwen2_vl": "engine.graph.families.towers:qwen2_vl",
    "qwen3": "engine.graph.families.qwen3:spec",
    "qwen3_5": "engine.graph.families.qwen3_5:spec",
    "qwen3_5_moe": "engine.graph.families.qwen3_5:spec",
    "qwen3_moe": "engine.graph.families.qwen3_moe:spec",
    "qwen3_next": "engine.graph.families.qwen3_next:spec",
    "qwen3_vl": "engine.graph.families.towers:qwen3_vl",
    "qwen3_vl_moe": "engine.graph.families.towers:qwen3_vl_moe",
    "recurrent_gemma": "engine.graph.families.recurrent_gemma:spec",
    "rwkv7": "engine.graph.families.rwkv7:spec",
    "seed_oss": "engine.graph.families.seed_oss:spec",
    "smollm3": "engine.graph.families.smollm3:spec",
    "solar_open": "engine.graph.families.solar_open:spec",
    "spark2_5": "engine.graph.families.spark2_5:spec",
    "stablelm": "engine.graph.families.stablelm:spec",
    "starcoder2": "engine.graph.families.starcoder2:spec",
    "step3p5": "engine.graph.families.step3p5:spec",
    "talkie": "engine.graph.families.talkie:spec",
    "telechat3": "engine.graph.families.telechat3:spec",
    "xverse": "engine.graph.families.llama:spec",
    "youtu_llm": "engine.graph.families.youtu_llm:spec",
}

# (model_type, one of a config's architectures) -> the model_type whose family it is.
ARCHITECTURES = {("bailing_hybrid", "BailingMoeV3ForCausalLM"): "bailing_moe_v3"}


def build_spec(config: Mapping[str, Any]) -> ArchSpec:
    """The spec of a config.json; an unknown model_type is `UnknownField` and lists the known ones."""
    from engine.graph.families.common import Config

    model_type = config.get("model_type")
    for (outer, architecture), inner in ARCHITECTURES.items():
        named = config.get("architectures") if model_type == outer else None
        if isinstance(named, (list, tuple, str)) and architecture in named:
            model_type = inner
    if not isinstance(model_type, str) or model_type not in FAMILIES:
        raise UnknownField("config.json model_type", str(model_type), FAMILIES)
    return family_spec(model_type, config if isinstance(config, Config) else Config(config))


def family_spec(name: str, config: Config) -> ArchSpec:
    """What the family `name` makes of a config, with what mlx-lm's class fills in where the config is silent."""
    from engine.graph.families.common import DEFAULTS

    module, symbol = FAMILIES[name].split(":")
    silent = DEFAULTS.get(module.rpartition(".")[2], {})
    spec: ArchSpec = getattr(importlib.import_module(module), symbol)(config.defaulted(silent))
    return spec
