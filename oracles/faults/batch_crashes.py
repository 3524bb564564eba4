"""mlx-lm: six architectures cannot run in its batch at all; its server calls them batchable."""

from __future__ import annotations

import tempfile
from pathlib import Path

from oracles.faults.entry import Fault, Shown
from oracles.recipe import Form, find_recipe

MODULES = ("gemma2", "internlm3", "gpt_bigcode", "phi3small", "llama4", "deepseek_v41")
# A module that runs, so that the probe shows that it can tell.
RIGHT = "llama"
# Three: two rows would fit the two key heads of gemma2 and phi3small, and be masked by them without a word.
PROMPTS = ([5, 9, 2, 7, 3, 8], [4, 6, 11], [7, 7])


def outcome(module: str) -> str:
    """What three prompts in one batch raise; "" if they run."""
    from mlx_lm.generate import BatchGenerator
    from mlx_lm.utils import load_model

    from oracles.build_adapter import build

    with tempfile.TemporaryDirectory() as root:
        folder = Path(root) / module
        build(find_recipe(module), Form(), folder)
        model, _ = load_model(folder, strict=True)
        batch = BatchGenerator(model, max_tokens=3)
        batch.insert([list(prompt) for prompt in PROMPTS])
        left = len(PROMPTS)
        try:
            while left:
                left -= sum(answer.finish_reason is not None for answer in batch.next_generated())
        except ValueError as error:
            return str(error)
        finally:
            batch.close()
    return ""


def probe(model: str) -> Shown:
    """Every module's batch, and that of one that runs."""
    said = {module: outcome(module) for module in (*MODULES, RIGHT)}
    right = said.pop(RIGHT)
    mended = [module for module, text in said.items() if not text]
    listed = "; ".join(f"{module}: {text[:60]}" for module, text in said.items())
    told = f"; no longer: {', '.join(mended)}" if mended else ""
    return Shown(not mended and not right, f"three prompts in one batch: {listed}{told}")


FAULT = Fault(
    oracle="mlx-lm",
    where="BatchGenerator with gemma2, internlm3, gpt_bigcode, phi3small, llama4, deepseek_v41",
    what="raises at the first step: masks of other ranks, a rope by one length, caches that do not merge",
    ours="rows keep caches of their own; where a graph has one position for all rows each row has its own forward",
    probe=probe,
)
