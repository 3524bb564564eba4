"""phi3small: every n-th layer attends blocks of keys; q, k and v in groups, a clipped gelu pair, muP multipliers."""

from engine.graph.families.common import ArchSpec, AttentionSpec, Config, HeadSpec, StemSpec, layer_norm, layer_norms
from engine.graph.scopes import BlockSparseSpec
from engine.graph.spec import RopeSpec

# The tokenizer's unused ids, whatever the vocabulary is (mlx-lm 0.32.2, models/phi3small.py).
BANNED = (100256, 100258, 100259, 100260, 100264, 100265, *range(100267, 100352))


def _attention(config: Config) -> AttentionSpec:
    head_dim = config.even_head_dim()
    scale = 1.0 / head_dim**0.5
    if config.flag("mup_use_scaling", True):
        scale = 1.0 / (head_dim / config.number("mup_attn_multiplier"))
    positions = {"type": "positions", "scale": config.number("rope_position_scale")}
    rope = RopeSpec(dims=head_dim, base=config.number("rope_embedding_base"), scaling=positions)
    names = {"qkv": "query_key_value", "packed": "groups", "o": "dense"}
    return config.attention(head_dim=head_dim, scale=scale, rope=rope, bias=True, **names)


def spec(config: Config) -> ArchSpec:
    eps, attn = config.number("layer_norm_epsilon"), _attention(config)
    hidden, limit = config.positive("ff_intermediate_size"), config.number("gegelu_limit")
    keys = ("block_size", "num_local_blocks", "vert_stride")
    size, local, stride = (config.positive(f"blocksparse_{key}") for key in keys)
    if size not in (32, 64):
        raise config.invalid("blocksparse_block_size", size, (32, 64))
    sparse = BlockSparseSpec(attention=attn, size=size, local=local, stride=stride)
    every, vocab = config.positive("dense_attention_every_n_layers"), config.positive("vocab_size")
    divide, banned = config.number("mup_width_multiplier", zero=True), tuple(token for token in BANNED if token < vocab)
    return config.decoder(
        lambda i: attn if i % every else sparse,
        config.mlp(hidden=hidden, act="gegelu", limit=limit, fused="pairs", bias=True),
        norms=layer_norms(eps),
        stem=StemSpec(scale=config.number("mup_embedding_multiplier", zero=True) or None),
        norm=layer_norm("model.final_layernorm", eps),
        head=HeadSpec(tied=True, divide=divide or None, banned=banned),
        untie=False,
    )
