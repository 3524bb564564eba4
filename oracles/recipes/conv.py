"""Tiny configurations: short convolutions, linear attention and other recurrences."""

from __future__ import annotations

from oracles.recipe import Recipe

RECIPES: dict[str, Recipe] = {}
