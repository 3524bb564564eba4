"""What a killed run goes on from: parameters, moments and counts in one file that is there whole or not at all."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import mlx.core as mx

from engine.errors import CorruptFile
from engine.train.trainer import Trainer, Tree

SEPARATOR = "|"  # in no parameter's name


def save_checkpoint(path: Path, trainer: Trainer, notes: Mapping[str, str]) -> None:
    """Write the trainer's state and `notes`; the file before it stays until the new one is whole."""
    arrays = dict(_flat(_state(trainer), ""))
    mx.eval(arrays)
    partial = path.with_name(f".{path.name}.partial.safetensors")
    mx.save_safetensors(str(partial), arrays, metadata={**notes, "count": str(trainer.count)})
    os.replace(partial, path)


def load_checkpoint(path: Path, trainer: Trainer) -> dict[str, str]:
    """Put the state of `path` into a trainer of the same parameters, and return the notes.

    Raises `CorruptFile` for a file that is damaged or of other parameters.
    """
    try:
        loaded: Any = mx.load(str(path), return_metadata=True)
    except (RuntimeError, ValueError) as error:
        raise CorruptFile(path, " ".join(str(error).split())) from error
    arrays, notes = loaded
    wanted = {name: value.shape for name, value in _flat(_state(trainer), "")}
    found = {name: value.shape for name, value in arrays.items()}
    if wanted != found or "count" not in notes:
        odd = sorted(name for name in wanted.keys() | found.keys() if wanted.get(name) != found.get(name))
        raise CorruptFile(path, f"not a checkpoint of this model: {', '.join(odd[:3]) or 'no count'}")
    tree: Tree = {}
    for name in wanted:  # in the trainer's own order: sums over all gradients follow it
        *at, leaf = name.split(SEPARATOR)
        node = tree
        for part in at:
            node = node.setdefault(part, {})
        node[leaf] = arrays[name]
    trainer.parameters, trainer.moments = tree["parameters"], tree["moments"]
    trainer.count = int(notes.pop("count"))
    return dict(notes)


def _state(trainer: Trainer) -> Tree:
    return {"parameters": trainer.parameters, "moments": trainer.moments}


def _flat(tree: Mapping[str, Any], at: str) -> Iterator[tuple[str, mx.array]]:
    for name, value in tree.items():
        path = f"{at}{SEPARATOR}{name}" if at else name
        if isinstance(value, Mapping):
            yield from _flat(value, path)
        else:
            yield path, value
