"""The cells of `frontier parity --suite kv`: KV schemes over tiny models of every kind of cache.

Uniform schemes on full attention are judged by mlx-lm, plans per layer and packed rings by mlx-optiq (mlx-lm raises
there), packing on write by the engine at another chunk. What nobody else has is the Lab's, and the row says so.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from oracles.architectures import PROMPT, forced, prompts, vocabulary
from oracles.client import Worker
from oracles.contract import Probe, StackConfig
from oracles.matrix import random_ids
from oracles.parity import LAB, Cell
from oracles.recipe import Form, Recipe, find_recipe
from oracles.tiny import tiny_model, tiny_root

CHUNKS = (2048, 7)
# Plans per layer at the chunks in use, over a prompt that is longer than the smaller ones.
PLAN_CHUNKS = (2048, 64, 32)
PLAN_PROMPT = 100
STEPS = 8
# Full attention: plain, with norms on heads, biased, looped, with experts; beside recurrences.
FULL = ("qwen3", "olmo2-untied-biased", "qwen3_moe", "qwen3_next")
# Rings: beside full layers, with experts, with sinks, alone.
RINGS = ("gemma3_text", "afmoe", "gpt_oss", "exaone_moe-sliding")
UNIFORM = ("kv8:g32", "kv4:g32", "kv8:g32:start=20")
# Packed once the first call is over, since mlx-lm cannot begin with 3, 5 or 6 bits; 8/8 is another name of 8.
WIDTHS = ("kv2:g32", "kv3:g32", "kv5:g32", "kv6:g32", "kv8/8:g32")
ON_WRITE = ("kv8:g32:on-write", "kv8/4:g32:on-write", "kv4:g32:on-write")
# Of nobody else; TurboQuant's on a model with heads of 64.
ALONE = ("kv8/4:g32", "kv4/8:g32", "kv8/4:g32:start=20")
TURBO = tuple(f"turbo:k{keys}v{values}" for keys, values in ((8, 3), (8, 8), (5, 5), (4, 4), (2, 2)))
TURBO_MODEL = "qwen3"
QUICK_FULL, QUICK_RINGS = ("qwen3",), ("gemma3_text", "gpt_oss")


def mixed_plan(layers: Mapping[int, int]) -> str:
    """The notation of a plan: layer -> bits, groups of 32; layers not named stay native."""
    name = "-".join(f"{layer}.{bits}" for layer, bits in sorted(layers.items()))
    path = tiny_root() / f"kv-{name}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    staged = path.with_suffix(f".{os.getpid()}")
    entries = [{"layer_idx": layer, "bits": bits, "group_size": 32} for layer, bits in layers.items()]
    staged.write_text(json.dumps(entries) + "\n", encoding="utf-8")
    os.replace(staged, path)
    return f"mixed:{path}"


def kv_cells(*, quick: bool) -> list[Cell]:
    """Every scheme over the models, at several chunks, with prompts that wrap a ring and that do not."""
    with Worker(StackConfig(stack="mlx-lm", model="", compile=False)) as builder:
        full = {name: _made(builder, name) for name in (QUICK_FULL if quick else FULL)}
        rings = {name: _made(builder, name) for name in (QUICK_RINGS if quick else RINGS)}
    chunks = PLAN_CHUNKS[-1:] if quick else PLAN_CHUNKS
    cells: list[Cell] = []
    for name, folder in full.items():
        cells += _group(name, folder, UNIFORM, CHUNKS, (PROMPT,), "mlx-lm")
        cells += _group(name, folder, WIDTHS, CHUNKS[-1:], (PROMPT,), "mlx-lm")
        if name != "qwen3_next":  # its states are layers, which a plan would name
            cells += _group(name, folder, _plans(50), chunks, (PLAN_PROMPT,), "optiq")
        cells += _between_chunks(name, folder)
        cells += _group(name, folder, ALONE, CHUNKS[-1:], (PROMPT,), LAB)
    for name, folder in rings.items():
        shortest = prompts(find_recipe(name))[0]  # shorter than the window
        cells += _group(name, folder, _plans(10), chunks[-1:], (shortest,), "optiq")
        cells += _group(name, folder, (*UNIFORM[:2], *_plans(50)), chunks, (PLAN_PROMPT,), "optiq")
        cells += _group(name, folder, ALONE, CHUNKS[-1:], (PROMPT,), LAB)
    turbo = Path(tiny_model(TURBO_MODEL))
    return cells + _group(TURBO_MODEL, turbo, TURBO, CHUNKS[-1:], (PROMPT,), LAB)


def _plans(later: int) -> tuple[str, ...]:
    """A plan from the first token on, and one from `later` tokens on."""
    return mixed_plan({0: 8, 1: 4}), f"{mixed_plan({1: 4})}:start={later}"


def _made(builder: Worker, name: str) -> Path:
    return builder.make(find_recipe(name), Form())


def _group(
    name: str,
    folder: Path,
    schemes: Sequence[str],
    chunks: Sequence[int],
    lengths: Sequence[int],
    reference: str,
) -> list[Cell]:
    recipe = find_recipe(name)
    return [
        _cell(name, folder, recipe, kv, chunk, length, reference)
        for kv in schemes
        for chunk in chunks
        for length in lengths
    ]


def _cell(name: str, folder: Path, recipe: Recipe, kv: str, chunk: int, length: int, reference: str) -> Cell:
    return Cell(
        name=name if recipe.window is None else f"{name} (window {recipe.window})",
        dtype="float32",
        model=str(folder),
        kv=kv,
        chunk=chunk,
        probe=forced(recipe, length, chunk),
        steps=STEPS,
        reference=reference,
        compile=False,
    )


def _between_chunks(name: str, folder: Path) -> list[Cell]:
    """Packed on write, a prompt in chunks of 7 and in one piece: the engine against itself (bundled BLAS)."""
    recipe = find_recipe(name)
    probe = Probe(token_ids=random_ids(vocabulary(recipe.config), PROMPT + STEPS), tail=STEPS)
    return [
        replace(_cell(name, folder, recipe, kv, 7, PROMPT, "engine"), probe=probe, reference_chunk=2048)
        for kv in ON_WRITE
    ]
