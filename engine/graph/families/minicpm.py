"""minicpm: llama with factors on the embedding, both residual branches and the hidden states before an untied head."""

from engine.graph.families.common import ArchSpec, Config, HeadSpec, StemSpec


def spec(config: Config) -> ArchSpec:
    shrink = config.positive("hidden_size") / config.number("dim_model_base")
    return config.decoder(
        config.attention(head_dim=config.even_head_dim(), theta=1000000.0),
        config.mlp(),
        residual_scale=config.number("scale_depth") / config.positive("num_hidden_layers") ** 0.5,
        stem=StemSpec(scale=config.number("scale_emb")),
        head=HeadSpec(tied=True) if config.tied(False) else HeadSpec(tied="absent", divide_hidden=shrink),
        rotary=False,
    )
