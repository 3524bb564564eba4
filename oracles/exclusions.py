"""What the oracle itself cannot run on this machine, with its own words, and parameters that it does not read.

A cell that the oracle refuses passes only if an entry here says so; a test asks the oracle whether it still does.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from fnmatch import fnmatchcase

from oracles.recipe import DTYPES, QUANTS, Form

HALF = ("bfloat16", "float16")


@dataclass(frozen=True, kw_only=True)
class Exclusion:
    """Forms of some recipes that the oracle refuses.

    recipes: patterns of recipe names; unless: patterns of names among them that run. text: in the oracle's exception.
    reason: why, in the project's words.
    """

    recipes: tuple[str, ...]
    text: str
    reason: str
    unless: tuple[str, ...] = ()
    dtypes: tuple[str, ...] = DTYPES
    quants: tuple[str | None, ...] = (None, *QUANTS)

    def covers(self, recipe: str, form: Form) -> bool:
        """Whether this entry is about that form of that recipe."""
        named = matches(recipe, self.recipes) and not matches(recipe, self.unless)
        return named and form.dtype in self.dtypes and form.quant in self.quants


@dataclass(frozen=True, kw_only=True)
class Unmoved:
    """Kinds of parameter whose values the oracle does not read. Patterns of recipe names and of kinds."""

    recipes: tuple[str, ...]
    kinds: tuple[str, ...]
    reason: str


# Modules whose experts are one array, multiplied by mx.gather_mm.
STACKED_EXPERTS = (
    "Klear",
    "afmoe",
    "bailing_hybrid",
    "bailing_moe",
    "bailing_moe_linear",
    "bailing_moe_v3",
    "deepseek",
    "deepseek_v2",
    "deepseek_v3",
    "deepseek_v32",
    "deepseek_v41",
    "dots1",
    "ernie4_5_moe",
    "exaone_moe",
    "gemma4",
    "glm4_moe",
    "glm4_moe_lite",
    "glm_moe_dsa",
    "gpt_oss",
    "granitemoe",
    "granitemoehybrid",
    "hunyuan",
    "kimi_k25",
    "kimi_vl",
    "kimi_k3",
    "kimi_linear",
    "jamba",
    "laguna",
    "lfm2_moe",
    "llama4",
    "longcat_flash",
    "longcat_flash_ngram",
    "mellum",
    "mimo_v2_flash",
    "minimax",
    "mistral4",
    "minimax_m3_vl",
    "mixtral",
    "nemotron_h",
    "olmoe",
    "phi-msft",
    "phimoe",
    "phixtral",
    "qwen2_moe",
    "qwen3_5_moe",
    "qwen3_moe",
    "qwen3_next",
    "qwen3_vl_moe",
    "solar_open",
    "step3p5",
)

EXCLUSIONS: tuple[Exclusion, ...] = (
    Exclusion(
        recipes=("olmo", "olmo-*"),
        text="SystemExit: 1",
        reason="its module calls sys.exit where the package hf_olmo is not installed",
    ),
    Exclusion(
        recipes=("bitnet", "bitnet-*", "muse_spark", "muse_spark-*"),
        text="RuntimeError: [metal_kernel] No Metal back-end.",
        reason="its kernels exist for Metal only",
    ),
    Exclusion(
        recipes=("afm7", "afm7-*"),
        quants=QUANTS,
        text="TypeError: FusedLinear.to_quantized() got an unexpected keyword argument 'mode'",
        reason="mlx-lm 0.32.2 cannot quantise its fused layers",
    ),
    Exclusion(
        recipes=("llama4_text-tied", "seed_oss-tied"),
        quants=QUANTS,
        text="ValueError: [matmul] Last dimension of first input",
        reason="the tied head multiplies by the packed embedding as if it were dense",
    ),
    Exclusion(
        recipes=("minicpm-tied",),
        text="ValueError: Received 1 parameters not in model: lm_head.weight.",
        reason="its sanitize adds a head to every checkpoint without one, and the strict load then refuses it",
    ),
    Exclusion(
        recipes=(
            "gemma4_text-moe",
            "mistral3-latent",
            *(pattern for name in STACKED_EXPERTS for pattern in (name, f"{name}-*")),
        ),
        unless=(
            "bailing_hybrid-dense",
            "bailing_moe_linear-dense",
            "deepseek-dense",
            "gemma4",
            "granitemoehybrid-attention",
            "granitemoehybrid-dense",
            "hunyuan-dense",
            "jamba-dense",
            "nemotron_h-dense",
        ),
        dtypes=HALF,
        quants=(None,),
        text="RuntimeError: [GatherMM::eval] Currently only supports float32.",
        reason="MLX on the CPU multiplies stacks of unpacked experts in float32 only",
    ),
)

UNMOVED: tuple[Unmoved, ...] = (
    Unmoved(
        recipes=("helium-tied-bias",), kinds=("lm_head.weight",), reason="helium builds a head even where it is tied"
    ),
    Unmoved(
        recipes=("gemma3n-plain",),
        kinds=("*.altup.correct_output_scale",),
        reason="it scales only where altup_correct_scale is set",
    ),
    Unmoved(
        recipes=("mixtral-ties",),
        kinds=("*.block_sparse_moe.gate.weight",),
        reason="the recipe fixes the router at zero, so that all experts tie",
    ),
)


def matches(name: str, patterns: Iterable[str]) -> bool:
    """Whether a name fits one of the shell-style patterns, case and all."""
    return any(fnmatchcase(name, pattern) for pattern in patterns)


def find_exclusion(recipe: str, form: Form, text: str) -> Exclusion | None:
    """The entry that foresaw this refusal."""
    return next((entry for entry in EXCLUSIONS if entry.covers(recipe, form) and entry.text in text), None)


def find_unmoved(recipe: str, kind: str) -> Unmoved | None:
    """The entry that says why the oracle's logits do not depend on that kind of parameter."""
    found = (entry for entry in UNMOVED if matches(recipe, entry.recipes) and matches(kind, entry.kinds))
    return next(found, None)
