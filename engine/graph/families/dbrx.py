"""dbrx: layer norms without biases, clipped q, k and v, a mixture of separate experts; all keys are its own."""

import mlx.core as mx

from engine.graph.expert_list import ExpertListSpec
from engine.graph.families.common import Config, layer_norm, plain_rope
from engine.graph.renames import Split
from engine.graph.spec import ArchSpec, HeadSpec, LayerSpec, MlpSpec, Norms, RouterSpec, StemSpec


def per_expert(experts: int, name: str, transposed: bool) -> Split:
    """All experts' matrices below each other become one key each."""

    def cut(array: mx.array) -> list[mx.array]:
        return [part.T if transposed else part for part in mx.split(array, experts, axis=0)]

    keys = tuple(rf"\1.{e}.{name}.weight" for e in range(experts))
    return Split(rf"(.*\.experts)\.mlp\.{name}", keys, cut)


def spec(config: Config) -> ArchSpec:
    given, ffn = config.inner("attn_config"), config.inner("ffn_config")
    dim, heads, experts = config.positive("d_model"), config.positive("n_heads"), ffn.positive("moe_num_experts")
    head_dim = dim // heads
    layer = LayerSpec(
        attention=config.attention(
            heads=heads,
            kv_heads=given.positive("kv_n_heads"),
            head_dim=head_dim,
            rope=plain_rope(head_dim, given.number("rope_theta")),
            qkv="Wqkv",
            o="out_proj",
            clip=given.number("clip_qkv"),
        ),
        attn_key="norm_attn_norm.attn",
        mlp=ExpertListSpec(
            experts=experts,
            top_k=ffn.positive("moe_top_k"),
            router=RouterSpec(key="router.layer", score="softmax_float32", normalise="sum", cast="input"),
            expert=MlpSpec(hidden=ffn.positive("ffn_hidden_size"), gate="w1", up="v1", down="w2"),
        ),
        mlp_key="ffn",
        norms=Norms(
            pre_attn=layer_norm("norm_attn_norm.norm_1", 1e-5, bias=False),
            pre_mlp=layer_norm("norm_attn_norm.norm_2", 1e-5, bias=False),
        ),
    )
    return ArchSpec(
        family="dbrx",
        vocab=config.positive("vocab_size"),
        dim=dim,
        layers=(layer,) * config.positive("n_layers"),
        layers_key="transformer.blocks",
        stem=StemSpec(key="transformer.wte"),
        norm=layer_norm("transformer.norm_f", 1e-5, bias=False),
        head=HeadSpec(tied=False),
        rules=tuple(per_expert(experts, name, name == "w2") for name in ("w1", "v1", "w2")),
    )
