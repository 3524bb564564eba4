"""Tiny configurations: delta hybrids with a gate per channel (KDA)."""

from __future__ import annotations

from oracles.recipe import Recipe

RECIPES: dict[str, Recipe] = {}
