"""llama4_text: traditional rope in the layers of no_rope_layers, a norm without weight on query and key heads."""

from engine.graph.families.common import ArchSpec, Config, HeadSpec, plain_rope


def spec(config: Config) -> ArchSpec:
    head_dim, feed = config.positive("head_dim"), config.mlp(hidden=config.positive("intermediate_size_mlp"))
    rope = plain_rope(head_dim, config.rope_base(), traditional=True)
    normed = config.qk_heads(q=None, k=None) if config.flag("use_qk_norm") else None
    ropes = [rope if turns else None for turns in config.each("no_rope_layers")]
    attn = [config.attention(head_dim=head_dim, rope=rope, qk_norm=normed) for rope in ropes]
    return config.decoder(attn, feed, mlp_key="feed_forward", head=HeadSpec(tied=config.tied(), key="output"), rules=())
