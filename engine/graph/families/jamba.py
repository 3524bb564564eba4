"""jamba: token-by-token state-space layers with norms inside and some attention layers without positions, over dense
MLPs and mixtures."""

from typing import Any

from engine.graph.families.common import Config
from engine.graph.families.mamba import rank
from engine.graph.families.mamba2 import hybrid
from engine.graph.mamba import MambaSpec
from engine.graph.renames import FILTERS, stacked
from engine.graph.spec import ArchSpec, AttentionSpec, RouterSpec


def _mamba(config: Config) -> MambaSpec:
    return MambaSpec(
        channels=config.positive("mamba_expand") * config.positive("hidden_size"),
        state=config.positive("mamba_d_state"),
        rank=rank(config, "mamba_dt_rank"),
        width=config.positive("mamba_d_conv"),
        conv_bias=config.flag("mamba_conv_bias", True),
        bias=config.flag("mamba_proj_bias", False),
        norms=(config.rms("dt_layernorm"), config.rms("b_layernorm"), config.rms("c_layernorm")),
        together=True,
    )


def _attention(config: Config) -> AttentionSpec:
    return config.attention(head_dim=config.even_head_dim(), rope=None)


def _every(config: Config, what: str) -> list[bool]:
    """In which layers something is: each `period`-th from `offset` on (register: "jamba-expert-layers")."""
    period, offset = config.positive(f"{what}_layer_period"), config.count(f"{what}_layer_offset")
    return [i % period == offset for i in range(config.positive("num_hidden_layers"))]


def spec(config: Config) -> ArchSpec:
    config.choice("hidden_act", ("silu",), "silu")
    if config.get("layers_block_type") is None:
        kinds = ["attention" if attends else "mamba" for attends in _every(config, "attn")]
        config = config.replaced(layers_block_type=kinds)
    feed: Any = config.mlp()
    if config.positive("num_experts") > 1:
        router = RouterSpec(key="router", score="logits", selected="softmax")
        dense, sparse = feed, config.moe(router, hidden="intermediate_size")
        feed = [sparse if has else dense for has in _every(config, "expert")]
    fields = {"norms": config.pre_norms(second="pre_ff_layernorm"), "mlp_key": "feed_forward"}
    return config.arch(
        hybrid(config, "layers_block_type", {"mamba": _mamba, "attention": _attention}, feed, **fields),
        norm=config.rms("model.final_layernorm"),
        more_rules=(FILTERS, *stacked("feed_forward", "switch_mlp")),
    )
