"""phi3small: every n-th layer attends blocks of keys; q, k and v in groups, a clipped gelu pair, muP multipliers."""

from dataclasses import replace

from engine.errors import InvalidValue
from engine.graph.scopes import BlockSparseSpec
from engine.graph.families.common import DEFAULTS, Config, layer_norm
from engine.graph.renames import ROTARY
from engine.graph.spec import ArchSpec, AttentionSpec, HeadSpec, LayerSpec, MlpSpec, Norms, RopeSpec, StemSpec

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
    config = config.defaulted(DEFAULTS["phi3small"])
    eps, attn = config.number("layer_norm_epsilon"), _attention(config)
    hidden, limit = config.positive("ff_intermediate_size"), config.number("gegelu_limit")
    size, local, stride = (
        config.positive(f"blocksparse_{key}") for key in ("block_size", "num_local_blocks", "vert_stride")
    )
    if size not in (32, 64):
        raise InvalidValue("config.json blocksparse_block_size", size, (32, 64))
    dense = LayerSpec(
        attention=attn,
        mlp=MlpSpec(hidden=hidden, act="gegelu", limit=limit, up="up_proj", fused="pairs", bias=True),
        norms=Norms(pre_attn=layer_norm("input_layernorm", eps), pre_mlp=layer_norm("post_attention_layernorm", eps)),
    )
    sparse = replace(dense, attention=BlockSparseSpec(attention=attn, size=size, local=local, stride=stride))
    every, vocab = config.positive("dense_attention_every_n_layers"), config.positive("vocab_size")
    layers = [dense if i % every else sparse for i in range(config.positive("num_hidden_layers"))]
    stem = StemSpec(scale=config.number("mup_embedding_multiplier", zero=True) or None)
    divide = config.number("mup_width_multiplier", zero=True) or None
    head = HeadSpec(tied=True, divide=divide, banned=tuple(token for token in BANNED if token < vocab))
    norm = layer_norm("model.final_layernorm", eps)
    return config.arch(layers, tied=True, stem=stem, norm=norm, head=head, rules=(ROTARY,))
