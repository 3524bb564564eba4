"""lfm2, lfm2-vl: gated short convolutions with a full attention layer here and there, tied head."""

from typing import Any

from engine.errors import InvalidValue
from engine.graph.families.common import Config
from engine.graph.families.towers import text_tower
from engine.graph.renames import FILTERS
from engine.graph.short_conv import ShortConvSpec
from engine.graph.spec import ArchSpec, LayerSpec


def attended(config: Config) -> list[bool]:
    """Which layers are attention: those in full_attn_idxs, or as layer_types says."""
    count, listed = config.positive("num_hidden_layers"), config.get("full_attn_idxs")
    if listed is None:
        kinds, known = config.each("layer_types"), ("conv", "full_attention")
        for kind in kinds:
            if kind not in known:
                raise InvalidValue(f"config.json {config.path}layer_types", kind, known)
        return [kind == "full_attention" for kind in kinds]
    if not isinstance(listed, (list, tuple)) or not all(i in range(count) for i in listed):
        raise InvalidValue(f"config.json {config.path}full_attn_idxs", listed, f"a list of layers, 0..{count - 1}")
    return [i in listed for i in range(count)]


def layers(config: Config, feed: Any) -> list[LayerSpec]:
    """Convolution and attention layers around `feed`, an MLP or a function of a layer's index."""
    nested = config.holding("rope_parameters", dict, {})
    turning = config.replaced(rope_theta=nested["rope_theta"]) if "rope_theta" in nested else config
    head_dim = config.even_head_dim()
    full = config.attention(
        head_dim=head_dim,
        rope=turning.rope(head_dim, 1000000.0),
        o="out_proj",
        qk_norm=config.qk_heads(q="q_layernorm", k="k_layernorm"),
    )
    width = config.positive("conv_L_cache")
    if width == 1:
        raise InvalidValue(f"config.json {config.path}conv_L_cache", width, "an integer >= 2")
    short = ShortConvSpec(width=width, bias=config.flag("conv_bias"))
    return [
        LayerSpec(
            attention=full if whole else short,
            attn_key="self_attn" if whole else "conv",
            mlp=feed(i) if callable(feed) else feed,
            mlp_key="feed_forward",
            norms=config.pre_norms("operator_norm", "ffn_norm"),
        )
        for i, whole in enumerate(attended(config))
    ]


def arch(config: Config, feed: Any, *rules: Any) -> ArchSpec:
    """The decoder; its head is the embedding, whatever the config says."""
    config = config.replaced(rms_norm_eps=config.number("norm_eps"))
    norm = config.rms("model.embedding_norm")
    return config.arch(layers(config, feed), tied=True, norm=norm, rules=(*rules, FILTERS))


def spec(config: Config) -> ArchSpec:
    hidden = config.positive("block_ff_dim", config.get("intermediate_size"))
    if config.flag("block_auto_adjust_ff_dim"):
        hidden = int(config.number("block_ffn_dim_multiplier", 1.0) * int(2 * hidden / 3))
        hidden = -(-hidden // config.positive("block_multiple_of")) * config.positive("block_multiple_of")
    if config.positive("block_dim") != config.positive("hidden_size"):
        raise InvalidValue(f"config.json {config.path}block_dim", config["block_dim"], config["hidden_size"])
    return arch(config, config.mlp(hidden=hidden, gate="w1", up="w3", down="w2"))


def vision(config: Config) -> ArchSpec:
    return text_tower(config, spec(config.inner("text_config")))
