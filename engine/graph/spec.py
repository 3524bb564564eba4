"""An architecture as data. A family file turns config.json into an `ArchSpec`; the decoder runs it and knows no name.

Keys are checkpoint names in mlx-lm's layout, relative to what holds them: the same row gives the graph and the weights.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from engine.kv.publish import publish_every
from engine.kv.spec import CacheSpec

Rule = Callable[
    [dict[str, Any]], dict[str, Any]
]  # weights by name -> weights by mlx-lm's names (engine/graph/renames.py)


@dataclass(frozen=True, kw_only=True)
class NormSpec:
    """A normalisation. key None: no weight. offset: added to the stored weight (1.0 where w is stored for 1 + w).

    kind "rms" | "layer"; "layer_heads" multiplies a weight per head [H, E] outside of the norm; "layer_stacked" does so
    with one checkpoint key per head ("<key>.norms.<h>.weight"), "rms_heads" one bare [H, E]; "rms_cast"
    casts its weight to x's dtype; "gain" only multiplies by a scalar (talkie).
    """

    key: str | None
    eps: float
    kind: Literal["rms", "rms_cast", "rms_heads", "layer", "layer_heads", "layer_stacked", "gain"] = "rms"
    bias: bool = False
    offset: float = 0.0


@dataclass(frozen=True, kw_only=True)
class Norms:
    """The norms before and after the two mixers of a layer; None: no norm there."""

    pre_attn: NormSpec | None = None
    post_attn: NormSpec | None = None
    pre_mlp: NormSpec | None = None
    post_mlp: NormSpec | None = None


@dataclass(frozen=True, kw_only=True)
class RopeSpec:
    """Rotary embedding of the first `dims` of a head. `scaling`: config.json's rope_scaling, or empty."""

    dims: int
    base: float
    traditional: bool = False
    scaling: Mapping[str, Any] = field(default_factory=dict)
    max_positions: int | None = None

    @property
    def kind(self) -> Any:
        """The type of its scaling, by either of the words that configs have for it."""
        return self.scaling.get("type") or self.scaling.get("rope_type", "default")


@dataclass(frozen=True, kw_only=True)
class QkNorm:
    """Norms of queries and keys. where: "flat" all heads together before the split, "head" each head, "rotated" each
    head after the rope. `k` None: keys have none."""

    q: NormSpec
    k: NormSpec | None
    where: Literal["flat", "head", "rotated"] = "head"


@dataclass(frozen=True, kw_only=True)
class GateSpec:
    """A gate on attention's output: out * fn(proj(x)). per_head: one value a head. float32: fn runs in float32.
    key None: the queries' projection holds it too, per head [query | gate]."""

    key: str | None
    per_head: bool = False
    fn: Literal["sigmoid", "softplus"] = "sigmoid"
    float32: bool = False
    bias: bool = False


@dataclass(frozen=True, kw_only=True)
class QueryScale:
    """Queries grow with position: 1 + beta * log(1 + floor((position + shift) / length)).

    cast "scale": the factor is cast to the embedding's dtype first, which in mxfp4 is not the queries' (ministral3);
    "product": the product is cast to the queries' dtype (llama4).
    """

    beta: float
    length: float
    shift: int = 0
    cast: Literal["scale", "product"] = "scale"


@dataclass(frozen=True, kw_only=True)
class AttentionSpec:
    """Grouped-query attention.

    qkv: key of one fused projection, with `packed` saying how it is cut: "blocks" [q | k | v], or "groups", per
    key/value head its queries, its key and its value. reads: index of the cache whose view it attends, appended by an
    earlier layer; then it has no keys and values of its own. projection "given": its projected keys and values, before
    norm and rope, serve the later layers that have them "taken", each into a cache of its own. window: keys a token
    sees (the mask); cache: how they are kept. values "keys": values are the keys' projection (before norm and rope).
    query_factor: before the rope; q_gain: key of a factor per head, after it. int8: keys of the scales by which keys
    and values are rounded to 8 bits before they are stored (afm7). float32: attention itself runs in float32, always or
    for float16 models.
    """

    heads: int
    kv_heads: int
    head_dim: int
    scale: float
    rope: RopeSpec | None
    v_dim: int | None = None
    qkv_bias: bool = False
    out_bias: bool = False
    q: str = "q_proj"
    k: str = "k_proj"
    v: str = "v_proj"
    o: str = "o_proj"
    qkv: str | None = None
    packed: Literal["blocks", "groups"] = "blocks"
    clip: float | None = None
    qk_norm: QkNorm | None = None
    v_norm: NormSpec | None = None
    int8: tuple[str, str] | None = None
    values: Literal["own", "keys"] = "own"
    value_scale: float | None = None
    query_factor: float | None = None
    q_gain: str | None = None
    query_scale: QueryScale | None = None
    softcap: float | None = None
    sinks: str | None = None
    gate: GateSpec | None = None
    out_norm: NormSpec | None = None
    float32: Literal["always", "float16"] | None = None
    reads: int | None = None
    projection: Literal["given", "taken"] | None = None
    cache: Literal["dense", "rotating", "chunked"] = "dense"
    window: int | None = None
    cache_size: int | None = None

    @property
    def lone(self) -> bool:
        """Whether queries, keys and values follow from the layer's input and its place alone."""
        return self.reads is None and self.projection is None and self.query_scale is None

    @property
    def caches(self) -> tuple[CacheSpec, ...]:
        """What it appends to: one cache, or none where it reads another layer's."""
        if self.reads is not None:
            return ()
        # A dynamic rope turns a call's keys by the length so far.
        free = self.cache == "dense" and not (self.rope and self.rope.kind == "dynamic")
        only_native = None
        if self.softcap is not None:
            only_native = "soft-caps its attention scores"
        return (
            CacheSpec(
                kind=self.cache,
                size=self.cache_size or self.window,
                window=self.window,
                head_dims=(self.head_dim, self.v_dim or self.head_dim),
                only_native=only_native,
                block=1 if free else None,
            ),
        )


@dataclass(frozen=True, kw_only=True)
class LinearSpec:
    """A single linear map in a mixer's place."""

    key: str = "linear"
    bias: bool = False
    caches: tuple[CacheSpec, ...] = ()


@dataclass(frozen=True, kw_only=True)
class MlpSpec:
    """down(act(gate, up)) with `gate`, else down(act(up)). act: a name of engine/graph/mlp.py, `limit` its parameters.

    fused: `up` holds gate and up together, [gate | up] or in "pairs" [gate, up, gate, up, ...]. sub_norm: before
    `down`.
    """

    hidden: int
    act: str = "swiglu"
    gate: str | None = "gate_proj"
    up: str = "up_proj"
    down: str = "down_proj"
    bias: bool = False
    fused: bool | Literal["pairs"] = False
    limit: float | tuple[float | None, ...] | None = None
    sub_norm: NormSpec | None = None


@dataclass(frozen=True, kw_only=True)
class RouterSpec:
    """From x to (expert ids, scores).

    key: of the linear map, `raw` where it is a bare parameter that is never quantised. float32_in: x is cast first.
    score: what the experts are ranked by, "softmax" in the logits' dtype with precise accumulation ("softmax_plain":
    without), the float32 ones after a cast, "logits" as they are. temperature: divides the logits. softcap: on them.
    correction: key, relative to the mixture, of a bias that
    counts in the ranking only; correction_cast: it is cast to the scores' dtype. groups, kept_groups: group-limited
    ranking, the others set to `dropped`; strength: of a group, its two best ranks together, or the best alone, whose
    dropped experts also score what they rank. pick: top k from the
    "front" of argpartition(-s) or the "back" of argpartition(s): the order, and the sum's, differ.
    selected: softmax, or a sigmoid, of the picked logits. normalise: "sum" divides the picked scores by their sum +
    eps, "max" by max(sum, eps). only_above_one: normalise only where top_k > 1. scale: after that. cast: scores to the
    logits' dtype ("logits") or x's ("input"). compiled: as mlx-lm compiles it.
    """

    key: str = "gate"
    raw: bool = False
    bias: bool = False
    float32_in: bool = False
    score: Literal[
        "softmax", "softmax_plain", "softmax_float32", "sigmoid", "sigmoid_float32", "sqrtsoftplus_float32", "logits"
    ]
    temperature: float | None = None
    softcap: float | None = None
    correction: str | None = None
    correction_cast: bool = False
    groups: int = 1
    kept_groups: int = 1
    dropped: float = 0.0
    strength: Literal["two", "best"] = "two"
    pick: Literal["front", "back"] = "front"
    selected: Literal["softmax", "softmax_float32", "sigmoid_float32"] | None = None
    normalise: Literal["sum", "max"] | None = None
    only_above_one: bool = False
    eps: float | None = None
    scale: float | None = None
    cast: Literal["logits", "input"] | None = None
    compiled: bool = False


@dataclass(frozen=True, kw_only=True)
class InnerSpec:
    """The width in which experts run where it is not the model's: `down` before them, `norm` and `up` after the sum."""

    dim: int
    down: str
    up: str
    norm: NormSpec | None = None
    bias: bool = False


@dataclass(frozen=True, kw_only=True)
class MoeSpec:
    """A mixture of gated experts, stacked [experts, out, in] under `at`.

    expert: one of them; with gate None it is up-act-down. cast: the weighted sum is cast to
    the experts' dtype. scores_float32: scores are cast first. compiled: the weighted sum as mlx-lm compiles it.
    scale: on the weighted sum. shared: a dense MLP under `shared_at` that is added; shared_gate: key of a sigmoid gate
    on it. prescale: x times the (single) score enters the expert, nothing is weighted after it. inner: the experts',
    not the router's and the shared one's, width.
    """

    experts: int
    top_k: int
    router: RouterSpec
    expert: MlpSpec
    at: str = "switch_mlp"
    cast: bool = False
    scores_float32: bool = False
    compiled: bool = False
    scale: float | None = None
    shared: MlpSpec | None = None
    shared_at: str = "shared_experts"
    shared_gate: str | None = None
    prescale: bool = False
    inner: InnerSpec | None = None
    caches: tuple[CacheSpec, ...] = ()


Mixer = Any  # a spec whose type is named in engine.graph.BUILDERS


@dataclass(frozen=True, kw_only=True)
class LayerSpec:
    """Residual attention and residual MLP, under `attn_key` and `mlp_key`; either may be absent.

    flow "parallel": both read the layer's input, (attn + mlp) + x; "parallel_residual": (x + attn) + mlp; without
    norms.pre_mlp the MLP reads what attention reads. residual_scale: on each mixer's output. clip: float16 sums are
    clipped to the dtype's range (gemma3).
    """

    attention: Mixer | None
    mlp: Mixer | None
    norms: Norms
    attn_key: str = "self_attn"
    mlp_key: str = "mlp"
    flow: Literal["sequential", "parallel", "parallel_residual"] = "sequential"
    residual_scale: float | None = None
    clip: bool = False

    @property
    def caches(self) -> tuple[CacheSpec, ...]:
        return self.attention.caches if self.attention is not None else ()


@dataclass(frozen=True, kw_only=True)
class StemSpec:
    """From ids to the residual stream: embedding, then scale, learned positions, norm, in this order.

    scale_bfloat16: the scale is rounded to bfloat16 first (gemma3). positions: (key, count).
    """

    key: str = "model.embed_tokens"
    scale: float | None = None
    scale_bfloat16: bool = False
    positions: tuple[str, int] | None = None
    norm: NormSpec | None = None


@dataclass(frozen=True, kw_only=True)
class HeadSpec:
    """From the final hidden states to logits: (hidden / divide_hidden) W^T + b, then * multiply, / divide, soft-cap.

    tied: W is the embedding, "absent": where the checkpoint has no head. raw: W is a bare parameter. softcap_compiled:
    as mlx-lm compiles it, cap * tanh(x / cap). gain: key of a scalar parameter on the logits. banned: ids whose logits
    are -inf.
    """

    tied: bool | Literal["absent"]
    key: str = "lm_head"
    bias: bool = False
    raw: bool = False
    gain: str | None = None
    divide_hidden: float | None = None
    multiply: float | None = None
    divide: float | None = None
    softcap: float | None = None
    softcap_compiled: bool = False
    banned: tuple[int, ...] = ()


@dataclass(frozen=True, kw_only=True)
class ArchSpec:
    """A whole decoder.

    layers_key: what the layers are numbered under, or a key for each (one that comes twice shares its weights).
    loops: how often the layers run, each pass with caches of its own; loop_norm: the final norm after every pass.
    outlet: a module before the final norm. stem_caches: the stem's own, before the layers'. at: what all keys are
    under. rules: from either checkpoint layout to mlx-lm's names.
    """

    family: str
    vocab: int
    dim: int
    layers: tuple[Any, ...]
    norm: NormSpec | None
    head: HeadSpec
    stem: Any = field(default_factory=StemSpec)
    layers_key: str | tuple[str, ...] = "model.layers"
    outlet: Any = None
    loops: int = 1
    loop_norm: bool = False
    at: str = ""
    rules: tuple[Rule, ...] = ()
    stem_caches: tuple[CacheSpec, ...] = ()

    @property
    def caches(self) -> tuple[CacheSpec, ...]:
        """Every cache of a row, in the order of mlx-lm's make_cache."""
        once = tuple(cache for layer in self.layers for cache in layer.caches)
        return self.stem_caches + once * self.loops

    def publish_every(self, chunk: int) -> int:
        """At which multiples of tokens a prefix may be published with native caches, or ones that are packed on write:
        see `engine.kv.publish`."""
        return publish_every(self.caches, chunk)
