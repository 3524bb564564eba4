"""phi3small: every n-th layer attends blocks of keys; q, k and v in groups, a clipped gelu pair, muP multipliers."""

from dataclasses import replace

from engine.errors import InvalidValue
from engine.graph.block_sparse import BlockSparseSpec
from engine.graph.families.common import Config, arch, attention, layer_norm
from engine.graph.renames import ROTARY
from engine.graph.spec import ArchSpec, AttentionSpec, HeadSpec, LayerSpec, MlpSpec, Norms, RopeSpec, StemSpec

# The tokenizer's unused ids, whatever the vocabulary is (mlx-lm 0.32.2, models/phi3small.py).
BANNED = (100256, 100258, 100259, 100260, 100264, 100265, *range(100267, 100352))


def _sparse(config: Config, attn: AttentionSpec) -> BlockSparseSpec:
    size = config.positive("blocksparse_block_size", 64)
    if size not in (32, 64):
        raise InvalidValue("config.json blocksparse_block_size", size, (32, 64))
    return BlockSparseSpec(
        attention=attn,
        size=size,
        local=config.positive("blocksparse_num_local_blocks", 16),
        stride=config.positive("blocksparse_vert_stride", 8),
    )


def spec(config: Config) -> ArchSpec:
    head_dim = config.positive("hidden_size") // config.positive("num_attention_heads")
    scale = 1.0 / head_dim**0.5
    if config.flag("mup_use_scaling", True):
        scale = 1.0 / (head_dim / config.number("mup_attn_multiplier", 1.0))
    rope = RopeSpec(
        dims=head_dim,
        base=config.number("rope_embedding_base", 1000000),
        scaling={"type": "positions", "scale": config.number("rope_position_scale", 1.0)},
    )
    eps = config.number("layer_norm_epsilon")
    mlp = MlpSpec(
        hidden=config.positive("ff_intermediate_size"),
        act="gegelu",
        limit=config.number("gegelu_limit"),
        up="up_proj",
        fused="pairs",
        bias=True,
    )

    attn = attention(
        config,
        head_dim=head_dim,
        scale=scale,
        rope=rope,
        qkv="query_key_value",
        packed="groups",
        o="dense",
        qkv_bias=True,
        out_bias=True,
    )
    norms = Norms(pre_attn=layer_norm("input_layernorm", eps), pre_mlp=layer_norm("post_attention_layernorm", eps))
    every, vocab = config.positive("dense_attention_every_n_layers"), config.positive("vocab_size")
    dense = LayerSpec(attention=attn, mlp=mlp, norms=norms)
    sparse = replace(dense, attention=_sparse(config, attn))
    return arch(
        config,
        [dense if i % every else sparse for i in range(config.positive("num_hidden_layers"))],
        tied=True,
        stem=StemSpec(scale=config.read("mup_embedding_multiplier", 10.0) or None),
        norm=layer_norm("model.final_layernorm", eps),
        head=HeadSpec(
            tied=True,
            divide=config.read("mup_width_multiplier", 8.0) or None,
            banned=tuple(token for token in BANNED if token < vocab),
        ),
        rules=(ROTARY,),
    )
