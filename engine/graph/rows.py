"""Which graphs take rows of unequal length in one forward: those whose modules ask a position as an array."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import is_dataclass
from typing import Any

from engine.graph import BUILDERS
from engine.graph.latent import LatentSpec
from engine.graph.spec import ArchSpec, AttentionSpec, RopeSpec, StemSpec

# Specs whose modules run B rows of one token at B positions as B forwards would (tests/oracles/test_rows.py).
ROWWISE = frozenset(
    {
        "AttentionSpec",
        "BlendedMoeSpec",
        "ChannelMixSpec",
        "ConvGateSpec",
        "DeltaSpec",
        "DualMlpSpec",
        "ExpertListSpec",
        "IdentityMoeSpec",
        "KdaSpec",
        "LayerSpec",
        "LightningSpec",
        "LinearSpec",
        "MambaSpec",
        "MlpSpec",
        "MoeSpec",
        "PerLayerStemSpec",
        "PlamoSsmSpec",
        "RgLruSpec",
        "ShortConvSpec",
        "SparseMixerSpec",
        "SsmSpec",
        "StemSpec",
        "TailedLayerSpec",
        "TimeMixSpec",
        "TwinLayerSpec",
        "XieluMlpSpec",
    }
)


# Those that do so over keys which lie in one array (engine.kv.padded), and not over each row's own.
BUFFERED = frozenset({"LatentSpec"})


def unfit_for_rows(spec: ArchSpec, *, one_buffer: bool = False) -> str:
    """Why rows of unequal length do not share a forward of this graph; "" where they do. one_buffer: whether their keys
    lie in one."""
    for part in parts(spec):
        name = type(part).__name__
        if name in BUFFERED and not one_buffer:
            return f"{name} takes the keys of all rows as one array"
        if name in BUILDERS and name not in ROWWISE | BUFFERED:
            return f"{name} has one position for all rows"
        if isinstance(part, LatentSpec) and part.query_scale is not None:
            return "queries are scaled by one position"
        if isinstance(part, StemSpec) and part.positions is not None:
            return "learned positions are looked up for one position"
        if isinstance(part, AttentionSpec) and part.query_scale is not None:
            return "queries are scaled by one position"
        if isinstance(part, RopeSpec) and part.kind == "dynamic":
            return "dynamic rope has one length for all rows"
    return ""


def parts(spec: Any) -> Iterator[Any]:
    """A spec and all that it is made of."""
    if is_dataclass(spec):
        yield spec
        for value in vars(spec).values():
            yield from parts(value)
    elif isinstance(spec, (tuple, list)):
        for item in spec:
            yield from parts(item)
