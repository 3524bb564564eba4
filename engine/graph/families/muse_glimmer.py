"""muse_glimmer: gemma's four norms with an eps of their own after the mixers, norms without weight on heads and on the
embedding, enlarged queries, gated attention, no rope in global layers, a scaled and capped head."""

from engine.graph.families.common import (
    DEFAULTS,
    ArchSpec,
    AttentionSpec,
    Config,
    GateSpec,
    HeadSpec,
    StemSpec,
    plain_rope,
)
from engine.graph.renames import Drop, Rename
from engine.graph.spec import Norms

_RULES = (
    Drop((r"^vision_(tower|adapter|projection)",)),
    Rename(r"^(language_model\.model|model\.language_model)\.", "model."),
    Rename(r"^language_model\.lm_head\.", "lm_head."),
)


def spec(config: Config) -> ArchSpec:
    if "text_config" in config:
        config = config.inner("text_config").defaulted(DEFAULTS["muse_glimmer"])
    nested = config.inner("rope_parameters") if config.get("rope_parameters") else config
    base, post_eps = nested.number("rope_theta", config.get("rope_theta") or 500000.0), config.number("post_norm_eps")
    kinds = config.each("layer_types", config.full_every(4))
    bases = config.each("layer_rope_theta", [0 if kind == "full_attention" else base for kind in kinds])
    every, factor = config.windows(kinds), config.number("qk_scale_factor")

    def attn(i: int) -> AttentionSpec:
        rope, qk = plain_rope(config.positive("head_dim"), base) if bases[i] else None, config.qk_heads(q=None, k=None)
        gate = GateSpec(key="gate_proj")
        return config.attention(rope=rope, qk_norm=qk, query_factor=factor, gate=gate, **every[i])

    norms = Norms(
        pre_attn=config.rms("input_layernorm", 1.0),
        post_attn=config.rms("post_attention_layernorm", 1.0, post_eps),
        pre_mlp=config.rms("pre_feedforward_layernorm", 1.0),
        post_mlp=config.rms("post_feedforward_layernorm", 1.0, post_eps),
    )
    multiply, cap = config.number("output_multiplier"), config.number("final_logit_softcapping")
    head, stem = HeadSpec(tied=config.tied(), multiply=multiply, softcap=cap), StemSpec(norm=config.rms(None))
    return config.decoder(attn, config.mlp(act="silu"), norms=norms, stem=stem, head=head, rules=_RULES)
