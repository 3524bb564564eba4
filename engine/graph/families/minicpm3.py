"""minicpm3: latent attention that keeps every head's keys and values, longrope, and minicpm's factors."""

from typing import Any

from engine.graph.families.common import Config
from engine.graph.families.deepseek_v3 import latent
from engine.graph.spec import ArchSpec, HeadSpec, LayerSpec, RopeSpec, StemSpec


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
    layer = LayerSpec(
        attention=latent(config, rope=rope, kept="heads", eps=1e-5, v_dim=config.even_head_dim()),
        mlp=config.mlp(),
        norms=config.pre_norms(),
        residual_scale=config.number("scale_depth") / config.positive("num_hidden_layers") ** 0.5,
    )
    shrink = config.positive("hidden_size") / config.number("dim_model_base")
    head = HeadSpec(tied=True) if tied else HeadSpec(tied=False, divide_hidden=shrink)
    return config.arch(layer, tied=tied, stem=StemSpec(scale=config.number("scale_emb")), head=head)
