"""muse_glimmer: gemma's four norms with an eps of their own after the mixers, norms without weight on heads and on the
embedding, enlarged queries, gated attention, no rope in global layers, a scaled and capped head."""

from engine.graph.families.common import DEFAULTS, Config, arch, attention, mlp, plain_rope, rms, sliding
from engine.graph.renames import Drop, Rename
from engine.graph.spec import ArchSpec, GateSpec, HeadSpec, LayerSpec, Norms, QkNorm, StemSpec


def spec(config: Config) -> ArchSpec:
    if "text_config" in config:
        config = config.inner("text_config")
    config = config.defaulted(DEFAULTS["muse_glimmer"])
    count, post_eps = config.positive("num_hidden_layers"), config.number("post_norm_eps")
    nested = config.inner("rope_parameters") if config.get("rope_parameters") else config
    base = nested.number("rope_theta", config.get("rope_theta") or 500000.0)
    kinds = config.each("layer_types", ((["sliding_attention"] * 3 + ["full_attention"]) * count)[:count])
    bases = config.each("layer_rope_theta", [0 if kind == "full_attention" else base for kind in kinds])

    def layer(kind: str, turns: bool) -> LayerSpec:
        attn = attention(
            config,
            rope=plain_rope(config.positive("head_dim"), base) if turns else None,
            qk_norm=QkNorm(q=rms(config, None), k=rms(config, None)),
            query_factor=config.number("qk_scale_factor"),
            gate=GateSpec(key="gate_proj"),
            **(sliding(config) if kind == "sliding_attention" else {}),
        )
        norms = Norms(
            pre_attn=rms(config, "input_layernorm", 1.0),
            post_attn=rms(config, "post_attention_layernorm", 1.0, post_eps),
            pre_mlp=rms(config, "pre_feedforward_layernorm", 1.0),
            post_mlp=rms(config, "post_feedforward_layernorm", 1.0, post_eps),
        )
        return LayerSpec(attention=attn, mlp=mlp(config, act="silu"), norms=norms)

    return arch(
        config,
        [layer(kind, bool(theta)) for kind, theta in zip(kinds, bases, strict=True)],
        stem=StemSpec(norm=rms(config, None)),
        head=HeadSpec(
            tied=config.flag("tie_word_embeddings"),
            multiply=config.number("output_multiplier"),
            softcap=config.number("final_logit_softcapping"),
        ),
        rules=(
            Drop((r"^vision_(tower|adapter|projection)",)),
            Rename(r"^(language_model\.model|model\.language_model)\.", "model."),
            Rename(r"^language_model\.lm_head\.", "lm_head."),
        ),
    )
