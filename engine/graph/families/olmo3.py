"""olmo3: olmo2 with sliding layers, three of four unless layer_types says otherwise; only global layers scale their
rope."""

from engine.graph.families.common import (
    Config,
    arch,
    attention,
    mlp,
    plain_rope,
    qk_heads,
    rms,
    rope,
    rope_base,
    sliding,
)
from engine.graph.spec import ArchSpec, LayerSpec, Norms


def spec(config: Config) -> ArchSpec:
    count, bias = config.positive("num_hidden_layers"), config.flag("attention_bias", False)
    head_dim = config.positive("head_dim", config.positive("hidden_size") // config.positive("num_attention_heads"))
    every_fourth = ["full_attention" if (i + 1) % 4 == 0 else "sliding_attention" for i in range(count)]

    def layer(local: bool) -> LayerSpec:
        attn = attention(
            config,
            head_dim=head_dim,
            rope=plain_rope(head_dim, rope_base(config)) if local else rope(config, head_dim, None),
            qkv_bias=bias,
            out_bias=bias,
            qk_norm=qk_heads(config, "flat"),
            **(sliding(config) if local else {}),
        )
        norms = Norms(
            post_attn=rms(config, "post_attention_layernorm"), post_mlp=rms(config, "post_feedforward_layernorm")
        )
        return LayerSpec(attention=attn, mlp=mlp(config), norms=norms)

    made = {local: layer(local) for local in (True, False)}
    kinds = config.each("layer_types", every_fourth)
    tied = config.flag("tie_word_embeddings", False)
    return arch(config, [made[kind != "full_attention"] for kind in kinds], tied=tied)
