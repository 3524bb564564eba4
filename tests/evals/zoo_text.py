"""Held-out text as token ids of the zoo's models, for tests that need weights which mean something."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path

from lab.zoo.data import stream
from lab.zoo.tokens import read_tokenizer
from oracles.contract import StackConfig

ZOO = Path(__file__).resolve().parents[1] / "zoo"


@cache
def held_out_ids() -> tuple[int, ...]:
    """Articles that no model of the zoo has seen, one after the other."""
    held = json.loads((ZOO / "held_out.json").read_text(encoding="utf-8"))
    return tuple(int(token) for token in stream(held["held_out"], read_tokenizer(ZOO / "tokenizer")))


def held_out(count: int, length: int) -> list[list[int]]:
    """So many pieces of so many tokens."""
    ids = held_out_ids()
    assert len(ids) >= count * length
    return [list(ids[start * length : (start + 1) * length]) for start in range(count)]


def zoo_arm(
    name: str, kv: str = "native", stack: str = "engine", chunk: int = 2048, dtype: str = "float32"
) -> StackConfig:
    """A model of the zoo, in float32 unless told: as every device has it."""
    return StackConfig(stack=stack, model=str(ZOO / name), kv=kv, chunk=chunk, dtype=dtype)
