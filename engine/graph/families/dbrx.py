"""dbrx: layer norms without biases, clipped q, k and v, a mixture of separate experts; all keys are its own."""

import mlx.core as mx

from engine.graph.families.common import ArchSpec, Config, RouterSpec, Split, StemSpec, layer_norm, plain_rope
from engine.graph.mixtures import ExpertListSpec
from engine.graph.spec import MlpSpec, Norms


def per_expert(experts: int, name: str, transposed: bool) -> Split:
    """All experts' matrices below each other become one key each."""

    def cut(array: mx.array) -> list[mx.array]:
        return [part.T if transposed else part for part in mx.split(array, experts, axis=0)]

    keys = tuple(rf"\1.{e}.{name}.weight" for e in range(experts))
    return Split(rf"(.*\.experts)\.mlp\.{name}", keys, cut)


def spec(config: Config) -> ArchSpec:
    given, ffn = config.inner("attn_config"), config.inner("ffn_config")
    dim, heads, experts = config.positive("d_model"), config.positive("n_heads"), ffn.positive("moe_num_experts")
    sizes = {"heads": heads, "kv_heads": given.positive("kv_n_heads"), "head_dim": dim // heads}
    rope, clip = plain_rope(dim // heads, given.number("rope_theta")), given.number("clip_qkv")
    expert = MlpSpec(hidden=ffn.positive("ffn_hidden_size"), gate="w1", up="v1", down="w2")
    router = RouterSpec(key="router.layer", score="softmax_float32", normalise="sum", cast="input")
    first, second, last = (
        layer_norm(key, 1e-5, bias=False)
        for key in ("norm_attn_norm.norm_1", "norm_attn_norm.norm_2", "transformer.norm_f")
    )
    return config.replaced(hidden_size=dim, num_hidden_layers=config.positive("n_layers")).decoder(
        config.attention(**sizes, rope=rope, qkv="Wqkv", o="out_proj", clip=clip),
        ExpertListSpec(experts=experts, top_k=ffn.positive("moe_top_k"), router=router, expert=expert),
        norms=Norms(pre_attn=first, pre_mlp=second),
        attn_key="norm_attn_norm.attn",
        mlp_key="ffn",
        layers_key="transformer.blocks",
        stem=StemSpec(key="transformer.wte"),
        norm=last,
        tied=False,
        rules=tuple(per_expert(experts, name, name == "w2") for name in ("w1", "v1", "w2")),
    )
