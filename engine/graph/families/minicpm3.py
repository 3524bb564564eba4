"""minicpm3: latent attention that keeps every head's keys and values, longrope, and minicpm's factors."""

from typing import Any

from engine.graph.families.common import ArchSpec, Config, HeadSpec, RopeSpec, StemSpec
from engine.graph.families.deepseek_v3 import latent


def spec(config: Config) -> ArchSpec:
    scaling: dict[str, Any] = {}
    if config.get("rope_scaling") is not None:
        given = config.inner("rope_scaling", original_max_position_embeddings=4096, long_factor=1.0)
        for key in ("type", "rope_type"):
            given.choice(key, ("longrope", "su"), "longrope")
        scaling = {**given, "type": "longrope"}
    rope = RopeSpec(
        dims=config.positive("qk_rope_head_dim"),
        base=config.number("rope_theta", 1000000.0),
        scaling=scaling,
        max_positions=config.positive("max_position_embeddings"),
    )
    tied = config.flag("tie_word_embeddings", False)
    config.positive("q_lora_rank")
    attn = latent(config, rope=rope, kept="heads", eps=1e-5, v_dim=config.even_head_dim())
    deep = config.number("scale_depth") / config.positive("num_hidden_layers") ** 0.5
    shrink = config.positive("hidden_size") / config.number("dim_model_base")
    head, stem = HeadSpec(tied=tied, divide_hidden=None if tied else shrink), StemSpec(scale=config.number("scale_emb"))
    return config.decoder(attn, config.mlp(), residual_scale=deep, head=head, stem=stem)
