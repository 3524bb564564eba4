"""granitemoe: multipliers on embedding, attention, residuals and logits, and a softmax over the chosen experts only."""

from engine.graph.families.common import ArchSpec, Config, HeadSpec, Rename, RouterSpec, Split, StemSpec, halves

_AT = r"(.*\.block_sparse_moe)"
RULES = (
    Split(rf"{_AT}\.input_linear\.(\w+)", (r"\1.switch_mlp.gate_proj.\2", r"\1.switch_mlp.up_proj.\2"), halves(axis=1)),
    Rename(rf"^{_AT}\.output_linear\.", r"\1.switch_mlp.down_proj."),
)


def spec(config: Config) -> ArchSpec:
    router = RouterSpec(key="router.layer", score="logits", pick="back", selected="softmax_float32")
    scale, bias = config.number("attention_multiplier"), config.flag("attention_bias")
    return config.decoder(
        config.attention(head_dim=config.even_head_dim(), scale=scale, bias=bias),
        config.moe(router, experts="num_local_experts", hidden="intermediate_size", cast=True),
        mlp_key="block_sparse_moe",
        residual_scale=config.number("residual_multiplier"),
        stem=StemSpec(scale=config.number("embedding_multiplier")),
        head=HeadSpec(tied=config.tied(True), divide=config.number("logits_scaling")),
        more_rules=RULES,
    )
