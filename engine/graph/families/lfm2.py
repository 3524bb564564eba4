"""lfm2, lfm2-vl: gated short convolutions with a full attention layer here and there, tied head."""

from typing import Any

from engine.graph.families.common import ArchSpec, Config, LayerSpec
from engine.graph.families.towers import text_tower
from engine.graph.renames import FILTERS
from engine.graph.short_conv import ShortConvSpec


def attended(config: Config) -> list[bool]:
    """Which layers are attention: those in full_attn_idxs, or as layer_types says."""
    count, listed = config.positive("num_hidden_layers"), config.get("full_attn_idxs")
    if listed is None:
        kinds, known = config.each("layer_types"), ("conv", "full_attention")
        for kind in kinds:
            if kind not in known:
                raise config.invalid("layer_types", kind, known)
        return [kind == "full_attention" for kind in kinds]
    if not isinstance(listed, (list, tuple)) or not all(i in range(count) for i in listed):
        raise config.invalid("full_attn_idxs", listed, f"a list of layers, 0..{count - 1}")
    return [i in listed for i in range(count)]


def arch(config: Config, feed: Any, *rules: Any) -> ArchSpec:
    """Convolution and attention layers around `feed`, an MLP or a function of a layer's index; the head is the
    embedding, whatever the config says."""
    config, nested = (
        config.replaced(rms_norm_eps=config.number("norm_eps")),
        config.holding("rope_parameters", dict, {}),
    )
    turning = config.replaced(rope_theta=nested["rope_theta"]) if "rope_theta" in nested else config
    head_dim, normed = config.even_head_dim(), config.qk_heads(q="q_layernorm", k="k_layernorm")
    rope = turning.rope(head_dim, 1000000.0)
    full = config.attention(head_dim=head_dim, rope=rope, o="out_proj", qk_norm=normed)
    short = ShortConvSpec(width=config.positive("conv_L_cache", least=2), bias=config.flag("conv_bias"))
    fields: dict[str, Any] = {"mlp_key": "feed_forward", "norms": config.pre_norms("operator_norm", "ffn_norm")}
    made = [
        LayerSpec(
            attention=full if whole else short,
            attn_key="self_attn" if whole else "conv",
            mlp=feed(i) if callable(feed) else feed,
            **fields,
        )
        for i, whole in enumerate(attended(config))
    ]
    # A head beside the embedding is its copy, unless the config says otherwise: then it is left over, and refused.
    untie, norm = config.tied(True), config.rms("model.embedding_norm")
    return config.arch(made, tied=True, untie=untie, norm=norm, more_rules=(*rules, FILTERS))


def spec(config: Config) -> ArchSpec:
    hidden = config.positive("block_ff_dim", config.get("intermediate_size"))
    if config.flag("block_auto_adjust_ff_dim"):
        hidden = int(config.number("block_ffn_dim_multiplier", 1.0) * int(2 * hidden / 3))
        hidden = -(-hidden // config.positive("block_multiple_of")) * config.positive("block_multiple_of")
    if config.positive("block_dim") != config.positive("hidden_size"):
        raise config.invalid("block_dim", config["block_dim"], f"hidden_size={config['hidden_size']}")
    return arch(config, config.mlp(hidden=hidden, gate="w1", up="w3", down="w2"))


def vision(config: Config) -> ArchSpec:
    return text_tower(config, spec(config.inner("text_config")))
