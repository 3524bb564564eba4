"""Tiny configurations: sparse attention with an indexer."""

from __future__ import annotations

from oracles.recipe import Recipe

RECIPES: dict[str, Recipe] = {}
