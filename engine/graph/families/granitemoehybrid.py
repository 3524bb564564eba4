"""granitemoehybrid: granite's factors around state-space or attention layers, each with a mixture and a shared MLP, or
with a dense MLP alone."""

from functools import partial
from typing import Any

from engine.graph.families.common import Config
from engine.graph.families.granitemoe import RULES
from engine.graph.families.mamba2 import hybrid, limits, ssm
from engine.graph.renames import FILTERS, Rename, Split, halves
from engine.graph.spec import ArchSpec, HeadSpec, MlpSpec, RouterSpec, StemSpec

_AT = r"(.*)\.shared_mlp"
_DENSE = (
    Split(rf"{_AT}\.input_linear\.(\w+)", (r"\1.mlp.gate_proj.\2", r"\1.mlp.up_proj.\2"), halves(axis=0)),
    Rename(rf"^{_AT}\.output_linear\.", r"\1.mlp.down_proj."),
)


def _mamba(config: Config) -> Any:
    bias = config.flag("mamba_proj_bias", False)
    return ssm(
        config,
        *("mamba_n_heads", "mamba_d_head", "mamba_d_state", "mamba_n_groups"),
        width=config.positive("mamba_d_conv"),
        conv_bias=config.flag("mamba_conv_bias", False),
        in_bias=bias,
        out_bias=bias,
        limits=limits(config, (0.001, 100.0)),
        cast_skip=True,
        norm=config.rms("norm"),
    )


def _attention(scale: float, config: Config) -> Any:
    nested = config.get("rope_parameters")
    if isinstance(nested, dict) and nested.get("rope_theta") is not None:
        config = config.replaced(rope_theta=nested["rope_theta"])
    head_dim = config.even_head_dim()
    placed = config.choice("position_embedding_type", ("rope", "nope"), "rope") == "rope"
    return config.attention(
        head_dim=head_dim,
        rope=config.replaced(rope_traditional=False).rope(head_dim) if placed else None,
        scale=scale,
        bias=config.flag("attention_bias"),
    )


def spec(config: Config) -> ArchSpec:
    config.choice("hidden_act", ("silu",), "silu")
    sparse, scale = config.count("num_local_experts", 0) > 0, config.number("attention_multiplier")
    feed: Any = config.mlp(bias=config.flag("mlp_bias", False))
    if sparse:
        width = config.positive("shared_intermediate_size")
        feed = config.moe(
            RouterSpec(key="block_sparse_moe.router.layer", score="logits", pick="back", selected="softmax"),
            experts="num_local_experts",
            hidden="intermediate_size",
            at="block_sparse_moe.switch_mlp",
            shared=MlpSpec(hidden=width, up="input_linear", down="output_linear", fused=True),
            shared_at="shared_mlp",
        )
    fields = {"mlp_key": "" if sparse else "mlp", "residual_scale": config.number("residual_multiplier")}
    return config.arch(
        hybrid(config, "layer_types", {"mamba": _mamba, "attention": partial(_attention, scale)}, feed, **fields),
        stem=StemSpec(scale=config.number("embedding_multiplier")),
        head=HeadSpec(tied=config.tied(True), divide=config.number("logits_scaling")),
        more_rules=(FILTERS, *(RULES if sparse else _DENSE)),
    )
