"""llama4_text: traditional rope in the layers of no_rope_layers, a norm without weight on query and key heads."""

from engine.graph.families.common import Config, plain_rope
from engine.graph.spec import ArchSpec, HeadSpec, LayerSpec


def spec(config: Config) -> ArchSpec:
    head_dim = config.positive("head_dim")
    rope = plain_rope(head_dim, config.rope_base(), traditional=True)
    qk_norm = config.qk_heads(q=None, k=None) if config.flag("use_qk_norm") else None
    layers = [
        LayerSpec(
            attention=config.attention(head_dim=head_dim, rope=rope if turns else None, qk_norm=qk_norm),
            mlp=config.mlp(hidden=config.positive("intermediate_size_mlp")),
            norms=config.pre_norms(),
            mlp_key="feed_forward",
        )
        for turns in config.each("no_rope_layers")
    ]
    head = HeadSpec(tied=config.flag("tie_word_embeddings"), key="output")
    return config.arch(layers, head=head, rules=())
