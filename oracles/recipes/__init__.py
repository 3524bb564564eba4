"""The tiny architectures, by group: name -> "module:symbol" of a `dict[str, Recipe]`."""

from __future__ import annotations

GROUPS: dict[str, str] = {
    "moe1": "oracles.recipes.moe1:RECIPES",
}
