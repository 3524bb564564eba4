"""Tiny models of mlx-lm's modules as recipes: a config, and a rule that draws every parameter by its name.

A recipe says nothing of parameters: a child process with mlx-lm instantiates the module, takes every name and shape,
and draws the values here (numpy's PCG64 from seed and name, so the same bits on every machine). Nothing keeps a
neutral initial value, which would hide an ignored parameter.
"""

from __future__ import annotations

import hashlib
import importlib
import json
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np

from engine import errors
from oracles.tiny import tiny_root

DTYPES = ("float32", "bfloat16", "float16")
QUANTS = ("q4g32", "q4g64", "mixed", "mxfp4", "mxfp8", "nvfp4")
LAYOUTS = ("saved", "hub", "drawn")

MATRIX_STD, HEAD_STD, EMBEDDING_STD, NORM_STD, VECTOR_STD = 0.2, 0.5, 0.15, 0.3, 0.3
_HEAD = re.compile(r"(.*\.)?(lm_head|embed_out|ff_out)\.weight|output\.weight")
# With a tied head, large rows make a model repeat its input.
_EMBEDDING = re.compile(r"(.*\.)?(embed_tokens|tok_embeddings|word_embeddings|embedding|embed_in|wte)\.weight")
_NORM = re.compile(r"(.*\.)?(\w*norm\w*|ln_?\w*)\.weight")


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """One tiny configuration of one mlx-lm module.

    config: the whole config.json, without dtype and quantization. window: the smallest sliding window or attention
    chunk, where there is one. hub: "oracles.layouts.<file>:<function>", (weights by mlx-lm's names, config) -> weights
    by the original checkpoint's names; None where the two are the same. norm_mean: 0.0 where the module stores w for
    1 + w. spread: regex on the whole parameter name -> (mean, std), first match wins over the rule of `draw`.
    quants: the packings that the dimensions allow; none where the config says how the module comes packed. without:
    regex on names of parameters that are left out of the folder, where a module takes their absence as a sign
    (gemma3_text is tied where there is no head).
    """

    config: Mapping[str, Any]
    window: int | None = None
    hub: str | None = None
    norm_mean: float = 1.0
    spread: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    quants: tuple[str, ...] = QUANTS
    without: str | None = None

    def __post_init__(self) -> None:
        if "model_type" not in self.config:
            raise errors.InvalidValue("config", sorted(self.config), "a config.json with model_type")
        for name in ("quantization", "quantization_config"):
            if name in self.config and self.quants:
                raise errors.InvalidValue("config", name, "no quantization: a form adds it")
        for quant in self.quants:
            if quant not in QUANTS:
                raise errors.InvalidValue("quants", quant, QUANTS)


@dataclass(frozen=True, kw_only=True)
class Form:
    """How a recipe is written: the dtype, a packing, the layout, and the kind of parameter that is drawn anew.

    layout: mlx-lm's names ("saved"), the original checkpoint's ("hub"), or "drawn": names and shapes alone, whose
    values whoever loads the folder draws on its device (`engine.Draw`), for models of real size that are only timed.

    mutate: a kind (see `kind_of`), whose parameters alone come from another seed; for the mutation test.
    """

    dtype: str = "float32"
    quant: str | None = None
    layout: str = "saved"
    mutate: str | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        if self.dtype not in DTYPES:
            raise errors.InvalidValue("dtype", self.dtype, DTYPES)
        if self.quant is not None and self.quant not in QUANTS:
            raise errors.InvalidValue("quant", self.quant, ("None", *QUANTS))
        if self.layout not in LAYOUTS:
            raise errors.InvalidValue("layout", self.layout, LAYOUTS)
        if self.layout == "hub" and self.quant is not None:
            raise errors.InvalidValue("quant", self.quant, "None in the hub layout")

    def __str__(self) -> str:
        parts = (self.dtype, self.quant, self.layout if self.layout != "saved" else None)
        return " ".join(part for part in parts if part)


def recipes() -> dict[str, Recipe]:
    """Every recipe by name, "<module>" or "<module>-<variant>", in the order of the groups."""
    from oracles.recipes import GROUPS

    found: dict[str, Recipe] = {}
    for place in GROUPS.values():
        group: Mapping[str, Recipe] = resolve(place)
        for name, recipe in group.items():
            if name in found:
                raise errors.InvalidValue("recipe", name, f"one group a name; {place} has it again")
            found[name] = recipe
    return found


def find_recipe(name: str) -> Recipe:
    """The recipe of that name; an unknown one raises `errors.UnknownField`."""
    known = recipes()
    if name not in known:
        raise errors.UnknownField("recipe", name, known)
    return known[name]


def recipe_from(fields: Mapping[str, Any]) -> Recipe:
    """The inverse of `asdict` after a trip through JSON."""
    spread = {pattern: (float(mean), float(std)) for pattern, (mean, std) in fields["spread"].items()}
    return Recipe(**{**fields, "spread": spread, "quants": tuple(fields["quants"])})


def resolve(place: str) -> Any:
    """What "module:symbol" names."""
    module, symbol = place.split(":")
    return getattr(importlib.import_module(module), symbol)


def kind_of(parameter: str) -> str:
    """The kind of a parameter: its name without layer and expert indices."""
    return re.sub(r"(?<=\.)\d+(?=\.)", "*", parameter)


def draw(recipe: Recipe, name: str, shape: tuple[int, ...], seed: int) -> np.ndarray:
    """The float32 values of one parameter. Norm weights are norm_mean + 0.3 N, other vectors and scalars 0.3 N,
    matrices 0.2 N, with wider rows in a head and narrower ones in an embedding, signs of rotations +-1; `spread` goes
    before."""
    mean, std = _spread(recipe, name, len(shape))
    values: np.ndarray = mean + std * _generator(name, seed).standard_normal(shape)
    if name.endswith(".signs"):
        values = np.where(values < 0, -1.0, 1.0)
    return np.asarray(values, dtype=np.float32)


def draw_words(name: str, shape: tuple[int, ...], seed: int) -> np.ndarray:
    """The 32-bit words of a map that a module packs itself."""
    return _generator(name, seed).integers(0, 2**32, shape, dtype=np.uint32)


def _generator(name: str, seed: int) -> np.random.Generator:
    entropy = [seed, int.from_bytes(hashlib.sha256(name.encode()).digest()[:8], "little")]
    return np.random.Generator(np.random.PCG64(entropy))


def _spread(recipe: Recipe, name: str, dimensions: int) -> tuple[float, float]:
    for pattern, spread in recipe.spread.items():
        if re.search(pattern, name):
            return spread
    if name.endswith(".weight") and (dimensions == 1 or _NORM.fullmatch(name)):
        return recipe.norm_mean, NORM_STD
    if dimensions < 2:
        return 0.0, VECTOR_STD
    if _HEAD.fullmatch(name):
        return 0.0, HEAD_STD
    return 0.0, EMBEDDING_STD if _EMBEDDING.fullmatch(name) else MATRIX_STD


def form_folder(recipe: Recipe, form: Form, root: Path | None = None) -> Path:
    """Where that form of the recipe is kept; the name holds a hash of everything that its content depends on."""
    if form.quant is not None and form.quant not in recipe.quants:
        raise errors.InvalidValue("quant", form.quant, ("None", *recipe.quants))
    here = Path(__file__).parent
    sources = [here / "recipe.py", here / "build_adapter.py"]
    if form.layout == "drawn":
        sources.append(here / "drawn_adapter.py")
    if form.layout == "hub" and recipe.hub is not None:
        sources.append(here.parent / (recipe.hub.split(":")[0].replace(".", "/") + ".py"))
    versions = [metadata.version(name) for name in ("mlx", "mlx-lm", "numpy")]
    digest = hashlib.sha256(json.dumps([asdict(recipe), asdict(form), versions], sort_keys=True).encode())
    for source in sources:
        digest.update(source.read_bytes())
    label = "-".join(filter(None, (recipe.config["model_type"], form.dtype, form.quant, form.layout)))
    return (root or tiny_root()) / f"{label}-{digest.hexdigest()[:16]}"
