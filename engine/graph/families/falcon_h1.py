"""falcon_h1: a state-space mixer and attention side by side in every layer; factors that an original checkpoint leaves
to the config are in the weights of one that mlx-lm saved."""

import mlx.core as mx

from engine.graph.families.common import Config
from engine.graph.families.mamba2 import limits, ssm
from engine.graph.renames import FILTERS
from engine.graph.spec import ArchSpec, HeadSpec, Rule
from engine.graph.twin import TwinLayerSpec


def _numbers(config: Config, key: str, count: int) -> list[float]:
    values = config.holding(key, list)
    if len(values) != count or not all(isinstance(n, (int, float)) and not isinstance(n, bool) for n in values):
        raise config.invalid(key, values, f"a list of {count} numbers")
    return values


def _folded(config: Config, widths: tuple[int, ...]) -> Rule:
    """Puts the factors into the weights of an original checkpoint, whose filters are [C, 1, W] (register:
    "falcon-h1-factors"). widths: of the parts of in_proj's output that have a factor each."""
    gate, down = _numbers(config, "mlp_multipliers", 2)
    attend, inward = config.number("attention_in_multiplier"), config.number("ssm_in_multiplier")
    parts = zip(widths, _numbers(config, "ssm_multipliers", len(widths)), strict=True)
    by_row = mx.concatenate([mx.full((width,), factor) for width, factor in parts])
    factors = {
        "embed_tokens": config.number("embedding_multiplier"),
        "lm_head": config.number("lm_head_multiplier"),
        "q_proj": attend,
        "k_proj": attend * config.number("key_multiplier"),
        "v_proj": attend,
        "o_proj": config.number("attention_out_multiplier"),
        "out_proj": config.number("ssm_out_multiplier"),
        "gate_proj": gate,
        "down_proj": down,
    }

    def fold(arrays: dict[str, mx.array]) -> dict[str, mx.array]:
        filters = arrays.get("model.layers.0.mamba.conv1d.weight")
        if filters is None or filters.ndim != 3 or filters.shape[-1] <= filters.shape[1]:
            return arrays
        made = dict(arrays)
        for name, array in arrays.items():
            module, _, kind = name.removeprefix("model.").rpartition(".")
            last = module.split(".")[-1]
            if kind == "weight" and last in factors:
                made[name] = array * factors[last]
            elif kind == "weight" and last == "in_proj":
                made[name] = array * (inward * by_row.astype(array.dtype)[:, None])
        return made

    return fold


def spec(config: Config) -> ArchSpec:
    config.choice("hidden_act", ("silu",), "silu")
    normed, groups = config.flag("mamba_rms_norm"), config.positive("mamba_n_groups")
    mixer = ssm(
        config,
        *("mamba_n_heads", "mamba_d_head", "mamba_d_state", "mamba_n_groups"),
        width=config.positive("mamba_d_conv"),
        conv_bias=config.flag("mamba_conv_bias"),
        in_bias=config.flag("mamba_proj_bias"),
        out_bias=config.flag("projectors_bias"),
        limits=limits(config, (0.0, float("inf"))),
        norm=config.rms("norm") if normed else None,
        norm_first=config.flag("mamba_norm_before_gate"),
        norm_groups=groups if groups > 1 else None,
    )
    inner, shared = mixer.heads * mixer.head_dim, mixer.groups * mixer.state
    if config.positive("mamba_d_ssm", inner) != inner:
        raise config.invalid("mamba_d_ssm", config["mamba_d_ssm"], f"mamba_n_heads * mamba_d_head = {inner}")
    layer = TwinLayerSpec(
        first=mixer,
        second=config.attention(bias=config.flag("attention_bias")),
        mlp=config.mlp(bias=config.flag("mlp_bias")),
        keys=("mamba", "self_attn", "feed_forward"),
        norm=config.rms("input_layernorm"),
        mlp_norm=config.rms("pre_ff_layernorm"),
    )
    tied = config.tied()
    ratio = config.number("lm_head_multiplier") / config.number("embedding_multiplier")
    return config.arch(
        [layer] * config.positive("num_hidden_layers"),
        norm=config.rms("model.final_layernorm"),
        head=HeadSpec(tied=tied, multiply=ratio if tied else None),
        tied=tied,
        more_rules=(_folded(config, (inner, inner, shared, shared, mixer.heads)), FILTERS),
    )
