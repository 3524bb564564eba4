"""Tiny models of mlx-lm's modules for tests of the engine's inside: built once a module of tests, loaded once."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from pathlib import Path

from engine.graph.model import Model, load_model
from oracles.client import Worker
from oracles.contract import StackConfig
from oracles.recipe import Form, find_recipe


def build(names: Iterable[str], root: Path) -> Path:
    """Write the recipes' models to folders of their names below `root`, which is returned."""
    with Worker(StackConfig(stack="mlx-lm", model="", compile=False)) as worker:
        for name in names:
            worker.build(find_recipe(name), Form(), root / name)
    return root


@lru_cache
def load(folder: Path) -> Model:
    """The model in a folder; `load.cache_clear()` frees all."""
    return load_model(folder, "auto")
