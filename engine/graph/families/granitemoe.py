"""granitemoe: multipliers on embedding, attention, residuals and logits, and a softmax over the chosen experts only."""

from engine.graph.families.common import Config, arch, attention, even_head_dim, mlp, pre_norms
from engine.graph.renames import ROTARY, UNTIE, Rename, Split, halves
from engine.graph.spec import ArchSpec, HeadSpec, LayerSpec, MoeSpec, RouterSpec, StemSpec

_AT = r"(.*\.block_sparse_moe)"
FUSED = Split(
    rf"{_AT}\.input_linear\.(\w+)", (r"\1.switch_mlp.gate_proj.\2", r"\1.switch_mlp.up_proj.\2"), halves(axis=1)
)


def spec(config: Config) -> ArchSpec:
    bias, tied = config.flag("attention_bias"), config.flag("tie_word_embeddings", True)
    moe = MoeSpec(
        experts=config.positive("num_local_experts"),
        top_k=config.positive("num_experts_per_tok"),
        router=RouterSpec(key="router.layer", score="logits", pick="back", selected="softmax_float32"),
        expert=mlp(config),
        cast=True,
    )
    layer = LayerSpec(
        attention=attention(
            config,
            head_dim=even_head_dim(config),
            scale=config.number("attention_multiplier"),
            qkv_bias=bias,
            out_bias=bias,
        ),
        mlp=moe,
        mlp_key="block_sparse_moe",
        norms=pre_norms(config),
        residual_scale=config.number("residual_multiplier"),
    )
    return arch(
        config,
        layer,
        tied=tied,
        stem=StemSpec(scale=config.number("embedding_multiplier")),
        head=HeadSpec(tied=tied, divide=config.number("logits_scaling")),
        rules=(
            ROTARY,
            FUSED,
            Rename(rf"^{_AT}\.output_linear\.", r"\1.switch_mlp.down_proj."),
            *((UNTIE,) if tied else ()),
        ),
    )
