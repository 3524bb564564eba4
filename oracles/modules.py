"""Every model module of mlx-lm 0.32.2: its trait group, its aliases, and the issue of this project that builds it.

A test holds this table against the installed package.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from engine import errors

MLX_LM = "0.32.2"


@dataclass(frozen=True)
class Group:
    """A trait group. `issue`: the number of the issue that builds its modules."""

    about: str
    issue: int
    modules: tuple[str, ...]


@dataclass(frozen=True)
class Module:
    """`aliases`: model_types that mlx-lm runs through this module; "type (Architecture)" where it asks for both."""

    name: str
    group: str
    issue: int
    aliases: tuple[str, ...]


def _group(about: str, issue: int, modules: str) -> Group:
    return Group(about, issue, tuple(modules.split()))


GROUPS: dict[str, Group] = {
    "A": _group(
        "dense, full attention",
        3,
        "apertus bitnet cohere ernie4_5 exaone gemma gemma2 glm glm4 gpt2 gpt_bigcode gpt_neox gptj granite helium "
        "hunyuan_v1_dense internlm2 internlm3 lille-130m llama llama4_text mimo minicpm nanochat nemotron nemotron-nas "
        "olmo olmo2 openelm phi phi3 phi3small plamo qwen qwen2 qwen3 seed_oss smollm3 stablelm starcoder2 talkie "
        "telechat3",
    ),
    "A2": _group("dense, looped or with reused KV", 3, "afm7 nanbeige iquestloopcoder"),
    "B": _group(
        "dense, sliding windows",
        3,
        "cohere2 exaone4 gemma3_text gemma3n gemma4_text ministral3 muse_glimmer olmo3 plamo3 spark2_5",
    ),
    "C": _group(
        "experts, full attention",
        3,
        "Klear bailing_moe dbrx deepseek dots1 ernie4_5_moe glm4_moe granitemoe hunyuan minimax mixtral olmoe phimoe "
        "phixtral qwen2_moe qwen3_moe solar_open",
    ),
    "C2": _group(
        "experts, sliding or chunked attention, sinks",
        3,
        "afmoe exaone_moe gpt_oss laguna mellum mimo_v2_flash step3p5 muse_spark llama4",
    ),
    "D": _group(
        "latent attention (MLA)",
        4,
        "deepseek_v2 deepseek_v3 glm4_moe_lite longcat_flash longcat_flash_ngram minicpm3 mistral4 youtu_llm",
    ),
    "D2": _group("sparse attention with an indexer", 4, "deepseek_v32 glm_moe_dsa deepseek_v41 minimax_m3_vl"),
    "E": _group("recurrent", 4, "mamba mamba2 rwkv7"),
    "F": _group(
        "hybrids of attention and recurrence or convolution",
        4,
        "baichuan_m1 bailing_hybrid bailing_moe_linear bailing_moe_v3 falcon_h1 gear granitemoehybrid jamba "
        "kimi_linear kimi_k3 lfm2 lfm2_moe nemotron_h olmo_hybrid plamo2 prism_hadamard_qwen35 qwen3_next qwen3_5 "
        "qwen3_5_moe recurrent_gemma",
    ),
    "G": _group(
        "text towers of vision models",
        3,
        "gemma3 gemma4 kimi_k25 kimi_vl lfm2-vl mistral3 pixtral qwen2_vl qwen3_vl qwen3_vl_moe",
    ),
}

# Wrappers around towers that stand on latent attention or convolutions, and come with those.
LATER: dict[str, int] = {"kimi_k25": 4, "kimi_vl": 4, "lfm2-vl": 4}

# model_type -> the module that mlx-lm runs it through (utils.py MODEL_REMAPPING).
ALIASES: dict[str, str] = {
    "mistral": "llama",
    "llava": "mistral3",
    "phi-msft": "phixtral",
    "falcon_mamba": "mamba",
    "joyai_llm_flash": "deepseek_v3",
    "kimi_k2": "deepseek_v3",
    "qwen2_5_vl": "qwen2_vl",
    "minimax_m2": "minimax",
    "iquestcoder": "llama",
    "xverse": "llama",
    "gemma4_unified": "gemma4",
    "deepseek_v41_text": "deepseek_v41",
}

# (model_type, an entry of architectures) -> module (utils.py MODEL_ARCHITECTURE_REMAPPING).
ARCHITECTURE_ALIASES: dict[tuple[str, str], str] = {
    ("bailing_hybrid", "BailingMoeV3ForCausalLM"): "bailing_moe_v3",
}


def modules() -> dict[str, Module]:
    """Every module by name, in the order of the groups."""
    found: dict[str, Module] = {}
    for key, group in GROUPS.items():
        for name in group.modules:
            aliases = [alias for alias, target in ALIASES.items() if target == name]
            aliases += [f"{kind} ({arch})" for (kind, arch), target in ARCHITECTURE_ALIASES.items() if target == name]
            found[name] = Module(name, key, LATER.get(name, group.issue), tuple(aliases))
    return found


def module_of(config: Mapping[str, Any]) -> str:
    """The module that mlx-lm runs a config.json through. Errors: `UnknownField` for a model_type that it lacks."""
    model_type = str(config.get("model_type"))
    for architecture in config.get("architectures") or ():
        if (model_type, architecture) in ARCHITECTURE_ALIASES:
            return ARCHITECTURE_ALIASES[model_type, architecture]
    name = ALIASES.get(model_type, model_type)
    if name not in modules():
        raise errors.UnknownField("config.json model_type", model_type, [*modules(), *ALIASES])
    return name
