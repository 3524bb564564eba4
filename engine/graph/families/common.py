"""The vocabulary of families: typed reading of config.json that remembers what was read, llama's value of every field,
and, so that a family has one import, the specs and rules that it is written in."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Literal

from engine.errors import InvalidValue
from engine.graph.renames import ROTARY, UNTIE, Change, Drop, Float8Blocks, Rename, Split, halves, stacked
from engine.graph.spec import (
    ArchSpec,
    AttentionSpec,
    GateSpec,
    HeadSpec,
    LayerSpec,
    MlpSpec,
    MoeSpec,
    Norms,
    NormSpec,
    QkNorm,
    RopeSpec,
    RouterSpec,
    StemSpec,
)

_MISSING = object()
# What mlx-lm's classes fill in where a config is silent, by family: some checkpoints' configs leave out much of it.
DEFAULTS: dict[str, dict[str, Any]] = json.loads(Path(__file__).with_name("defaults.json").read_text("utf-8"))
_LAYER_FIELDS = {field.name for field in dataclasses.fields(LayerSpec)}


class Config(Mapping[str, Any]):
    """config.json, or an object in it (`path` "text_config."). `seen`: the dotted keys that were read."""

    def __init__(self, values: Mapping[str, Any], path: str = "", seen: set[str] | None = None) -> None:
        self._values, self.path = values, path
        self.seen: set[str] = set() if seen is None else seen

    def __getitem__(self, key: str) -> Any:
        self.seen.add(self.path + key)
        return self._values[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def invalid(self, key: str, value: object, allowed: str | Iterable[object]) -> InvalidValue:
        """The error for a value under `key`."""
        return InvalidValue(f"config.json {self.path}{key}", value, allowed)

    def inner(self, key: str, **defaults: Any) -> Config:
        """The object under `key`, with `defaults` for what it lacks and the outer model_type where it has none."""
        value = self.get(key)
        if not isinstance(value, Mapping):
            raise self.invalid(key, value, "an object")
        outer = {"model_type": self._values.get("model_type")}
        return Config({**outer, **defaults, **value}, f"{self.path}{key}.", self.seen)

    def defaulted(self, defaults: Mapping[str, Any]) -> Config:
        """The same with `defaults` for the keys that it lacks; a null stays a null."""
        return Config({**defaults, **self._values}, self.path, self.seen)

    def replaced(self, **values: Any) -> Config:
        """The same with `values` in place of what it says."""
        return Config({**self._values, **values}, self.path, self.seen)

    def read(self, key: str, default: object = _MISSING) -> Any:
        """config[key]; null counts as absent. A missing required key is `InvalidValue`."""
        value = self.get(key)
        if value is not None:
            return value
        if default is _MISSING:
            raise self.invalid(key, None, f"a value (model_type {self._values.get('model_type')!r} needs it)")
        return default

    def positive(self, key: str, default: object = _MISSING, least: int = 1) -> int:
        """An integer field, of at least 1 or `least`."""
        value = self.read(key, default)
        if isinstance(value, bool) or not isinstance(value, int) or value < least:
            raise self.invalid(key, value, f"an integer >= {least}")
        return value

    def count(self, key: str, default: object = _MISSING) -> int:
        """An integer field >= 0."""
        return self.positive(key, default, least=0)

    def number(self, key: str, default: object = _MISSING, zero: bool = False) -> float:
        """A finite number above 0, or 0 where `zero`."""
        value = self.read(key, default)
        in_range = isinstance(value, (int, float)) and (0 < value < math.inf or (zero and value == 0))
        if isinstance(value, bool) or not in_range:
            raise self.invalid(key, value, f"a finite number >{'=' if zero else ''} 0")
        return value

    def holding(self, key: str, kind: type, default: object = _MISSING) -> Any:
        """A list or an object."""
        value = self.read(key, default)
        if not isinstance(value, kind):
            raise self.invalid(key, value, "a list" if kind is list else "an object")
        return value

    def flag(self, key: str, default: object = _MISSING) -> bool:
        """A true or false field."""
        return bool(self.read(key, default))

    def tied(self, default: object = _MISSING) -> bool:
        """tie_word_embeddings."""
        return self.flag("tie_word_embeddings", default)

    def to_sum(self, key: str = "norm_topk_prob", default: object = _MISSING) -> Literal["sum"] | None:
        """A router's `normalise` by a flag."""
        return "sum" if self.flag(key, default) else None

    def choice(self, key: str, known: Iterable[str], default: object = _MISSING) -> str:
        """One of the known words."""
        value, words = self.read(key, default), tuple(known)
        if value not in words:
            raise self.invalid(key, value, words)
        return value

    def of_layer(self, i: int, *keys: str) -> Config:
        """The same with entry `i` in place of each list that is under one of `keys`; null where a list is shorter."""
        lists = {k: self[k] for k in keys if isinstance(self.get(k), (list, tuple))}
        return self.replaced(**{k: v[i] if i < len(v) else None for k, v in lists.items()})

    def each(self, key: str, default: object = _MISSING) -> list[Any]:
        """A list with one entry per layer."""
        value, layers = self.read(key, default), self.positive("num_hidden_layers")
        if not isinstance(value, (list, tuple)) or len(value) != layers:
            raise self.invalid(key, value, f"a list of {layers} entries, one per layer")
        return list(value)

    def rms(self, key: str | None, offset: float = 0.0, eps: float | None = None) -> NormSpec:
        """An RMS norm with the config's rms_norm_eps."""
        return NormSpec(key=key, eps=self.number("rms_norm_eps") if eps is None else eps, offset=offset)

    def norms(self, *keys: str | None, offset: float = 0.0) -> Norms:
        """RMS norms before attention, after it, before the MLP and after it; None: no norm there."""
        places = zip(("pre_attn", "post_attn", "pre_mlp", "post_mlp"), keys, strict=False)
        return Norms(**{place: self.rms(key, offset) for place, key in places if key is not None})

    def pre_norms(
        self, first: str = "input_layernorm", second: str = "post_attention_layernorm", offset: float = 0.0
    ) -> Norms:
        """Norms before both mixers."""
        return self.norms(first, None, second, offset=offset)

    def qk_heads(
        self, where: Any = "head", q: str | None = "q_norm", k: str | None = "k_norm", offset: float = 0.0
    ) -> QkNorm:
        """RMS norms on queries and keys."""
        return QkNorm(q=self.rms(q, offset), k=self.rms(k, offset), where=where)

    def rope_base(self, default: object = _MISSING) -> float:
        """rope_theta, also where transformers 5 nests it under rope_parameters."""
        given = self.get("rope_parameters") or {}
        nested = given.get("rope_theta") if isinstance(given, Mapping) else None
        return self.number("rope_theta", default if nested is None else nested)

    def rope(self, dims: int, theta: object = 10000.0, traditional: bool = False) -> RopeSpec:
        """Rope from rope_theta and rope_scaling, or from transformers 5's nested rope_parameters."""
        given = self.get("rope_parameters") or {}
        nested = given if isinstance(given, Mapping) else {}
        base = self.rope_base(theta)
        for key in ("rope_scaling", "rope_parameters"):
            if self.get(key) is not None and not isinstance(self[key], Mapping):
                raise self.invalid(key, self[key], "an object or null")
        return RopeSpec(
            dims=dims,
            base=base,
            traditional=self.flag("rope_traditional", traditional),
            scaling=self.read("rope_scaling", nested),
            max_positions=self.count("max_position_embeddings", 0) or None,
        )

    def even_head_dim(self) -> int:
        """hidden_size / num_attention_heads, whatever head_dim says."""
        return self.positive("hidden_size") // self.positive("num_attention_heads")

    def attention(self, *, theta: object = 10000.0, **changes: Any) -> AttentionSpec:
        """Llama's attention fields, with `changes` on top. bias: on all four projections; theta: where the config gives
        the rope no base (None: it must)."""
        bias, heads = changes.pop("bias", False), changes.pop("heads", None) or self.positive("num_attention_heads")
        head_dim = changes.pop("head_dim", None) or self.positive("head_dim", self.positive("hidden_size") // heads)
        kv_heads = changes.pop("kv_heads", None) or self.positive("num_key_value_heads", heads)
        if heads % kv_heads:
            raise self.invalid("num_key_value_heads", kv_heads, f"a divisor of num_attention_heads={heads}")
        fields: dict[str, Any] = {"heads": heads, "kv_heads": kv_heads, "head_dim": head_dim, "scale": head_dim**-0.5}
        if "rope" not in changes:
            fields["rope"] = self.rope(head_dim, theta)
        return AttentionSpec(**{**fields, "qkv_bias": bias, "out_bias": bias, **changes})

    def moe(self, router: RouterSpec, **changes: Any) -> MoeSpec:
        """A mixture of llama's MLPs. experts, top_k, hidden: their number, how many a token passes, their width, or the
        config's keys for it; shared: the shared MLP, or the key of its width in experts' (0 or null for none)."""
        shared, bias = changes.pop("shared", None), changes.pop("bias", False)
        keys = {"experts": "num_experts", "top_k": "num_experts_per_tok", "hidden": "moe_intermediate_size"}
        given = {field: changes.pop(field, key) for field, key in keys.items()}
        experts, top_k, hidden = (self.positive(n) if isinstance(n, str) else n for n in given.values())
        if top_k > experts:
            raise self.invalid(str(given["top_k"]), top_k, f"at most the number of experts, {experts}")
        groups, kept = router.groups, router.kept_groups
        if groups > 1 and (experts % groups or experts < 2 * groups or kept > groups):
            asked = f"{groups}, of which {kept} kept"
            raise self.invalid("n_group", asked, f"groups of 2 or more of the {experts} experts")
        if isinstance(shared, str):
            count = self.count(shared, 0)
            shared = self.mlp(hidden=hidden * count, bias=bias) if count else None
        expert = changes.pop("expert", None) or self.mlp(hidden=hidden, bias=bias)
        return MoeSpec(experts=experts, top_k=top_k, router=router, expert=expert, shared=shared, **changes)

    def layers(self, attn: Any, feed: Any, **fields: Any) -> list[LayerSpec]:
        """Pre-norm layers, one each. `attn`, `feed`: the mixers' specs, one for all, a list, or a function of i."""
        fields = {"norms": self.pre_norms(), **fields} if "norms" not in fields else fields
        every = range(self.positive("num_hidden_layers"))
        mixers = ([m[i] if isinstance(m, list) else m(i) if callable(m) else m for i in every] for m in (attn, feed))
        return [LayerSpec(attention=attention, mlp=mlp, **fields) for attention, mlp in zip(*mixers, strict=True)]

    def decoder(self, attn: Any, feed: Any, **changes: Any) -> ArchSpec:
        """`arch` of `layers`; `changes` to either."""
        of_layers = {key: changes.pop(key) for key in _LAYER_FIELDS & changes.keys()}
        return self.arch(self.layers(attn, feed, **of_layers), **changes)

    def group_limits(self, kept: int = 1) -> dict[str, Any]:
        """A router's fields of group-limited ranking."""
        return {"groups": self.positive("n_group", 1), "kept_groups": self.positive("topk_group", kept)}

    def arch(self, layers: LayerSpec | list[Any], *, tied: bool | None = None, **changes: Any) -> ArchSpec:
        """A decoder with llama's names. `layers`: one spec for all of them, or one each.

        tied: fixed by the family or by `head`, or None to follow tie_word_embeddings (true where the config is silent).
        more_rules: beside llama's, which forget rotary tables (unless rotary=False) and a tied model's copy of its
        embedding (unless untie=False); rules: in place of all.
        """
        if tied is None:
            tied = changes["head"].tied is True if "head" in changes else self.tied(True)
        count = self.positive("num_hidden_layers") if not isinstance(layers, list) else len(layers)
        fields: dict[str, Any] = {
            "family": self["model_type"],
            "vocab": self.positive("vocab_size"),
            "dim": self.positive("hidden_size"),
            "layers": tuple(layers) if isinstance(layers, list) else (layers,) * count,
            "head": HeadSpec(tied=tied),
        }
        usual = (*((ROTARY,) if changes.pop("rotary", True) else ()), *((UNTIE,) if changes.pop("untie", tied) else ()))
        fields["rules"] = (*changes.pop("more_rules", ()), *usual)
        if "norm" not in changes:
            fields["norm"] = self.rms("model.norm")
        fields.update(changes)
        return ArchSpec(**fields)

    def mlp(self, **changes: Any) -> MlpSpec:
        """Llama's gated MLP."""
        return MlpSpec(
            **{"hidden": self.positive("intermediate_size"), **changes} if "hidden" not in changes else changes
        )

    def sliding(self, window: int | None = None) -> dict[str, Any]:
        """The attention fields of a sliding-window layer."""
        size = self.positive("sliding_window") if window is None else window
        return {"cache": "rotating", "window": size}

    def windows(self, kinds: list[str]) -> list[dict[str, Any]]:
        """The attention fields of each kind of layer: those of a sliding-window layer, none for a full one."""
        known = ("full_attention", "sliding_attention")
        for kind in kinds:
            if kind not in known:
                raise self.invalid("layer_types", kind, known)
        return [self.sliding() if kind == "sliding_attention" else {} for kind in kinds]

    def window_layers(self, default: object = _MISSING) -> list[dict[str, Any]]:
        """`windows` of layer_types."""
        return self.windows(self.each("layer_types", default))

    def full_every(self, nth: int) -> list[str]:
        """Kinds of layers: sliding ones, and every nth a full one."""
        count = self.positive("num_hidden_layers")
        return ["sliding_attention" if (i + 1) % nth else "full_attention" for i in range(count)]


def layer_norm(key: str | None, eps: float, bias: bool = True) -> NormSpec:
    return NormSpec(key=key, eps=eps, kind="layer", bias=bias)


def layer_norms(eps: float, first: str = "input_layernorm", second: str | None = "post_attention_layernorm") -> Norms:
    """Layer norms with biases before both mixers, or before one that both read."""
    return Norms(pre_attn=layer_norm(first, eps), pre_mlp=None if second is None else layer_norm(second, eps))


def plain_rope(dims: int, base: float, traditional: bool = False) -> RopeSpec:
    """A rope that no scaling in the config can change."""
    return RopeSpec(dims=dims, base=base, traditional=traditional)
