"""The cells of `frontier parity --suite device`: few shapes of many architectures, for a machine on which each new
shape costs seconds of compiling.

One of each kind of graph, solo and in rows beside each other, dense and in 4 bit, in the dtype that is at home on the
device: bf16, and float32 on a CPU, which cannot run every mixture in bf16. Rows run in each batch mode, and the mode
names its judge: the row alone (invariant), mlx-lm's batch at the same composition (composition), nobody (fast).
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from engine import machine
from oracles.architectures import FREE_STEPS, STEPS, forced, prompts, vocabulary
from oracles.batch_suite import COMPOSITIONS, LIMITS, split
from oracles.client import Worker
from oracles.contract import BatchProbe, StackConfig
from oracles.matrix import free_run, random_ids, tiny_group
from oracles.parity import LAB, Cell
from oracles.recipe import Form, find_recipe

CHUNK = 7
SOLO = (
    *("llama", "qwen2", "qwen3", "olmo2", "phi3", "glm4", "gemma3_text", "cohere2", "qwen3_moe", "mixtral", "gpt_oss"),
    *("deepseek_v3", "qwen3_next", "kimi_linear", "mamba2", "lfm2"),
)
ROWS = ("llama", "qwen3", "qwen3_moe", "gpt_oss", "gemma3_text", "deepseek_v3", "qwen3_next", "mamba2", "lfm2")
PACKED_CACHES = ("llama", "qwen3")
SCHEMES = ("kv8", "kv4")
QUICK = ("llama", "qwen3_moe")
# mode -> who judges its rows; nobody where the engine alone runs.
MODES = {"invariant": "plain", "composition": "batch", "fast": None}


def device_cells(*, quick: bool, part: tuple[int, int] = (1, 1)) -> list[Cell]:
    """All cells, or the share of one of several processes, `part` = (which, of how many): whole models in one form."""
    groups = [(name, form) for form in forms() for name in (QUICK if quick else SOLO)]
    mine = groups[part[0] - 1 :: part[1]]
    with Worker(StackConfig(stack="mlx-lm", model="")) as builder:
        folders = {(name, form): builder.make(find_recipe(name), form) for name, form in mine}
    cells = []
    for (name, form), folder in folders.items():
        cells += solo(name, form, folder)
        if name in ROWS:
            cells += rows(name, form, folder)
        if name in PACKED_CACHES and not quick:
            cells += packed_caches(name, form)
    return cells


def packed_caches(name: str, form: Form) -> list[Cell]:
    """Packed KV caches, on models whose heads are wide enough for a GPU's packed products."""
    quant = None if form.quant is None else "q4g64"
    return [cell for kv in SCHEMES for cell in tiny_group(name, form.dtype, quant, kv, CHUNK, ("forced", "greedy"))]


def forms() -> tuple[Form, Form]:
    """Dense and packed, in the device's own dtype."""
    dtype = "float32" if machine().device == "cpu" else "bfloat16"
    return Form(dtype=dtype), Form(dtype=dtype, quant="q4g32")


def solo(name: str, form: Form, folder: Path) -> list[Cell]:
    """A teacher-forced run in chunks, step by step and in several tokens at once, and a free greedy one."""
    recipe = find_recipe(name)
    longest = prompts(recipe)[-1]
    ids = random_ids(vocabulary(recipe.config), longest)
    base = Cell(
        name=name, dtype=str(form), model=str(folder), chunk=CHUNK, probe=forced(recipe, longest, CHUNK), steps=STEPS
    )
    return [base, replace(base, probe=free_run(ids, FREE_STEPS), steps=FREE_STEPS)]


def rows(name: str, form: Form, folder: Path) -> list[Cell]:
    """Rows beside each other, in every mode."""
    cells = []
    for mode, judge in MODES.items():
        for composition in COMPOSITIONS:
            cells.append(_rows(name, form, folder, composition, mode, judge))
    return cells


def _rows(name: str, form: Form, folder: Path, composition: str, mode: str, judge: str | None) -> Cell:
    lengths, joins = COMPOSITIONS[composition]
    limits = LIMITS[: len(lengths)]
    ids = random_ids(vocabulary(find_recipe(name).config), sum(lengths))
    return Cell(
        name=f"{name} {composition} {mode}",
        dtype=str(form),
        model=str(folder),
        chunk=CHUNK,
        probe=BatchProbe(rows=tuple(split(ids, lengths)), joins=joins, limits=limits, judge=judge or "plain"),
        steps=max(limits),
        reference="mlx-lm" if judge else LAB,
        levers=(("batch_mode", mode),),
    )
