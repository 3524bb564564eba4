"""plamo3: fused q, k, v and gate, up; norms around both mixers that store w for 1 + w, 1/5 + w and 5**-1.5 + w; every
n-th layer is global with a rope base of its own."""

from typing import Any

from engine.graph.families.common import ArchSpec, AttentionSpec, Config, Norms, plain_rope


def decoder(config: Config, mixers: Any) -> ArchSpec:
    """The norms, MLPs and names around the mixers, one for all layers or a function of their index (plamo2 too)."""
    norms = Norms(
        pre_attn=config.rms("pre_mixer_norm", 1.0),
        post_attn=config.rms("post_mixer_norm", 1.0 / 5),
        pre_mlp=config.rms("pre_mlp_norm", 1.0),
        post_mlp=config.rms("post_mlp_norm", 1.0 / (5**1.5)),
    )
    names = {"attn_key": "mixer", "layers_key": "model.layers.layers", "norm": config.rms("model.norm", 1.0)}
    return config.decoder(mixers, config.mlp(up="gate_up_proj", fused=True), norms=norms, **names)


def spec(config: Config) -> ArchSpec:
    window = config.positive("sliding_window", config.positive("window_size"))
    kinds = config.full_every(config.positive("sliding_window_pattern"))
    # mlx-lm masks one key more than its cache keeps.
    ring: dict[str, Any] = {"cache": "rotating", "window": window + 1, "cache_size": window}

    def attn(i: int) -> AttentionSpec:
        local = kinds[i] == "sliding_attention"
        rope = plain_rope(config.positive("head_dim"), config.number("rope_local_theta" if local else "rope_theta"))
        fields = {"qk_norm": config.qk_heads(offset=1.0), **(ring if local else {})}
        return config.attention(qkv="qkv_proj", rope=rope, **fields)

    return decoder(config, attn)
