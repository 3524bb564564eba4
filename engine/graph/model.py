"""A model folder becomes a decoder: config, weights, dtype, all checked before anything runs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import mlx.core as mx

from engine.artifacts.checkpoint import read_weights, weights_sha256
from engine.artifacts.profile import Profile
from engine.errors import InvalidValue
from engine.graph.decoder import Decoder
from engine.graph.fused import fuse
from engine.graph.params import Weights
from engine.graph.plain import plain_recurrences
from engine.graph.reading import read_architecture
from engine.graph.spec import ArchSpec


@dataclass(frozen=True)
class Model:
    """A loaded model.

    `dtype`: of its activations. `weights_bytes`: as held in memory, scales and biases included. `parameters`: values
    before packing.
    """

    path: Path
    config: Mapping[str, Any]
    profile: Profile
    spec: ArchSpec
    decoder: Decoder
    dtype: str
    sha256: str
    weights_bytes: int
    parameters: int


def load_model(path: Path, dtype: str, profile: str = "auto", recurrence: str = "fast", fused: str = "none") -> Model:
    """Load a folder: weights by mlx-lm's names or by the original hub's.

    dtype "auto" keeps what is stored; a name casts every floating array. profile: how config.json is read.
    recurrence: "fast" or "plain". fused: "none" or "quantized".

    Raises WeightsMismatch, CorruptFile, UnknownModelType, ProfileMismatch, UnsupportedConfig, InvalidValue.
    """
    reading = read_architecture(path, profile)
    reading.unread.check(path)
    reading.profile.check_dtype(dtype)
    config = reading.config
    spec = plain_recurrences(reading.spec) if recurrence == "plain" else reading.spec
    imported = config.get("mlx_frontier") or {}
    if dtype in ("float16", "bfloat16") and imported.get("imported_from") == "gguf":
        raise InvalidValue("dtype", dtype, "auto, float32 (a GGUF import holds values that 16 bits would change)")
    arrays = read_weights(path)
    for rule in spec.rules:
        arrays = rule(arrays)
    if dtype != "auto":  # after the rules, as the oracle casts: some make floats of bytes, some divide
        target = {"float32": mx.float32, "bfloat16": mx.bfloat16, "float16": mx.float16}[dtype]
        arrays = {k: v.astype(target) if mx.issubdtype(v.dtype, mx.floating) else v for k, v in arrays.items()}
    weights = Weights(arrays, config, str(path), spec.at)
    decoder = Decoder(spec, weights)
    mx.eval(list(arrays.values()))
    if fused == "quantized":
        fuse(decoder)
    table = decoder.stem.table(mx.array([0]))
    return Model(
        path=path,
        config=config,
        profile=reading.profile,
        spec=spec,
        decoder=decoder,
        dtype=str(table.dtype).removeprefix("mlx.core."),
        sha256=weights_sha256(path),
        weights_bytes=sum(a.nbytes for a in arrays.values()),
        parameters=weights.parameters,
    )
