"""exaone: llama under gpt2's names."""

from __future__ import annotations

from engine.graph.families.common import Config, arch, attention, mlp, rms
from engine.graph.spec import ArchSpec, HeadSpec, LayerSpec, Norms, StemSpec


def spec(config: Config) -> ArchSpec:
    eps, bias = config.number("layer_norm_epsilon"), config.flag("attention_bias", False)
    layer = LayerSpec(
        attention=attention(config, o="out_proj", qkv_bias=bias, out_bias=bias),
        mlp=mlp(config, gate="c_fc_0", up="c_fc_1", down="c_proj", bias=config.flag("mlp_bias", False)),
        norms=Norms(pre_attn=rms(config, "ln_1", eps=eps), pre_mlp=rms(config, "ln_2", eps=eps)),
        attn_key="attn.attention",
    )
    return arch(
        config,
        [layer] * config.positive("num_layers"),
        stem=StemSpec(key="transformer.wte"),
        layers_key="transformer.h",
        norm=rms(config, "transformer.ln_f", eps=eps),
        head=HeadSpec(tied=config.flag("tie_word_embeddings", True)),
        rules=(),
    )
