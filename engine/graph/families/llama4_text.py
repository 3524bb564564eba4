"""llama4_text: traditional rope in the layers of no_rope_layers, a norm without weight on query and key heads."""

from engine.graph.families.common import Config, arch, attention, mlp, plain_rope, pre_norms, qk_heads, rope_base
from engine.graph.spec import ArchSpec, HeadSpec, LayerSpec


def spec(config: Config) -> ArchSpec:
    head_dim = config.positive("head_dim")
    rope = plain_rope(head_dim, rope_base(config), traditional=True)
    qk_norm = qk_heads(config, q=None, k=None) if config.flag("use_qk_norm") else None
    layers = [
        LayerSpec(
            attention=attention(config, head_dim=head_dim, rope=rope if turns else None, qk_norm=qk_norm),
            mlp=mlp(config, hidden=config.positive("intermediate_size_mlp")),
            norms=pre_norms(config),
            mlp_key="feed_forward",
        )
        for turns in config.each("no_rope_layers")
    ]
    head = HeadSpec(tied=config.flag("tie_word_embeddings"), key="output")
    return arch(config, layers, head=head, rules=())
