"""Tiny configurations: gated delta hybrids."""

from __future__ import annotations

from oracles.recipe import Recipe

RECIPES: dict[str, Recipe] = {}
