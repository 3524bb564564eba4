"""An architecture as data. A family file turns config.json into an `ArchSpec`; the decoder runs it and knows no name.

Where a layer normalises is said by four optional checkpoint keys: the same row gives the graph and the weight names.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal


@dataclass(frozen=True, kw_only=True)
class Norms:
    """Checkpoint keys, inside a layer, of the norms before and after the two mixers; None: no norm there."""

    pre_attn: str | None = None
    post_attn: str | None = None
    pre_mlp: str | None = None
    post_mlp: str | None = None


@dataclass(frozen=True, kw_only=True)
class RopeSpec:
    """Rotary embedding of the first `dims` of a head. `scaling`: config.json's rope_scaling, or empty."""

    dims: int
    base: float
    traditional: bool = False
    scaling: Mapping[str, Any] = field(default_factory=dict)
    max_positions: int | None = None


@dataclass(frozen=True, kw_only=True)
class AttentionSpec:
    """Grouped-query attention. qk_norm: "head" normalises each head, "flat" all heads together before the split."""

    heads: int
    kv_heads: int
    head_dim: int
    scale: float
    rope: RopeSpec
    qkv_bias: bool = False
    out_bias: bool = False
    qk_norm: Literal["head", "flat"] | None = None
    softcap: float | None = None


@dataclass(frozen=True, kw_only=True)
class MlpSpec:
    """Gated MLP: down(act(gate(x)) * up(x)). `fused`: one gate_up_proj whose halves are gate and up."""

    hidden: int
    activation: Literal["silu", "gelu_approx"] = "silu"
    bias: bool = False
    fused: bool = False


@dataclass(frozen=True, kw_only=True)
class LayerSpec:
    attention: AttentionSpec
    mlp: MlpSpec
    norms: Norms


@dataclass(frozen=True, kw_only=True)
class ArchSpec:
    """A whole decoder.

    norm_offset: added to every norm weight (gemma stores w for 1 + w). embed_scale: factor on the embedding.
    tied: the head is the embedding. dropped: suffixes of checkpoint keys that nobody reads, as the oracle drops them.
    """

    family: str
    vocab: int
    dim: int
    layers: tuple[LayerSpec, ...]
    norm_eps: float
    tied: bool
    norm_offset: float = 0.0
    embed_scale: float | None = None
    final_softcap: float | None = None
    dropped: tuple[str, ...] = ()
