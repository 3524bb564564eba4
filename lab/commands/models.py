"""`frontier models`: the built-in models, whether they are here, and the families that the engine knows."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from lab.console import Output, size

HELP = "list the built-in models, whether they are fetched, and the known model families"
EXAMPLE = "frontier models --json"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """No flags of its own."""


def folder_bytes(folder: Path) -> int:
    """Bytes of a model folder's files."""
    return sum(file.stat().st_size for file in folder.iterdir())


def report() -> dict[str, Any]:
    """Built-in models and families as a JSON document."""
    from engine import BUILTIN, FAMILIES, cached_builtin  # the families load MLX

    models = []
    for name, entry in BUILTIN.items():
        folder = cached_builtin(name)
        models.append(
            {
                "name": name,
                "about": entry.about,
                "fetched": folder is not None,
                "folder": None if folder is None else str(folder),
                "bytes": None if folder is None else folder_bytes(folder),
                "download_bytes": entry.wheel.wheel_bytes,
                "source": entry.wheel.requirement,
            }
        )
    return {"models": models, "families": sorted(FAMILIES)}


def run(args: argparse.Namespace) -> int:
    out, doc = Output(as_json=args.json), report()
    for model in doc["models"]:
        state = (
            f"here, {size(model['bytes'])}, {model['folder']}"
            if model["fetched"]
            else f"not fetched; the first use fetches {model['source']} ({size(model['download_bytes'])})"
        )
        out.line(f"{model['name']}\n  {model['about']}\n  {state}")
    out.line(f"\nother models: a folder with config.json and model*.safetensors, or a hub id (org/name)\nfamilies: "
             f"{', '.join(doc['families'])}")  # fmt: skip
    out.document(doc)
    return 0
