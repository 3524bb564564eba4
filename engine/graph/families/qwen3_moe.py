"""qwen3_moe: qwen3 with softmax routing in every decoder_sparse_step-th layer that is not in mlp_only_layers."""

from engine.errors import InvalidValue
from engine.graph.families.common import Config, arch, attention, mlp, pre_norms, qk_heads, rope
from engine.graph.renames import ROTARY, UNTIE, stacked
from engine.graph.spec import ArchSpec, AttentionSpec, LayerSpec, MoeSpec, RouterSpec


def softmax_moe(config: Config, cast: bool) -> MoeSpec:
    """Softmax routing, picked from the back and normalised where the config says so."""
    return MoeSpec(
        experts=config.positive("num_experts"),
        top_k=config.positive("num_experts_per_tok"),
        router=RouterSpec(score="softmax", pick="back", normalise="sum" if config.flag("norm_topk_prob") else None),
        expert=mlp(config, hidden=config.positive("moe_intermediate_size")),
        cast=cast,
    )


def sparse_layers(config: Config, attn: AttentionSpec, sparse: MoeSpec | None) -> list[LayerSpec]:
    """Layers with `sparse` where decoder_sparse_step and mlp_only_layers leave room for it, dense ones elsewhere."""
    step, dense = config.positive("decoder_sparse_step", 1), config.read("mlp_only_layers", [])
    if not isinstance(dense, list):
        raise InvalidValue("config.json mlp_only_layers", dense, "a list of layer numbers")

    def layer(i: int) -> LayerSpec:
        feed = sparse if i not in dense and (i + 1) % step == 0 else None
        return LayerSpec(attention=attn, mlp=feed or mlp(config), norms=pre_norms(config))

    return [layer(i) for i in range(config.positive("num_hidden_layers"))]


def spec(config: Config) -> ArchSpec:
    head_dim = config.positive("head_dim")
    attn = attention(config, head_dim=head_dim, rope=rope(config, head_dim), qk_norm=qk_heads(config))
    sparse = softmax_moe(config, cast=True) if config.count("num_experts") else None
    tied = config.flag("tie_word_embeddings")
    rules = (ROTARY, *((UNTIE,) if tied else ()), *stacked("mlp", "switch_mlp"))
    return arch(config, sparse_layers(config, attn, sparse), tied=tied, rules=rules)
