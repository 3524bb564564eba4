"""Whether a model may keep a prefix of some length, from its folder's config alone: asked before anything is loaded."""

from __future__ import annotations

from pathlib import Path

from engine.graph.reading import read_architecture
from engine.kv.plan import KVPlan
from engine.kv.publish import require_boundary
from engine.kv.request import parse_kv


def check_prefix(folder: str | Path, *, kv: str, chunk: int, tokens: int) -> None:
    """Raise `InvalidValue` if the model of `folder`, under the KV scheme `kv` and prefill chunks of `chunk` tokens, has
    no boundary behind `tokens` tokens; and what `read_architecture` raises."""
    caches = read_architecture(Path(folder)).spec.caches
    require_boundary(KVPlan.build(parse_kv(kv), caches), chunk, tokens)
