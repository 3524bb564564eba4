"""plamo: attention and MLP read the same norm in parallel; query head h reads key/value head h modulo their number."""

from engine.graph.families.common import ArchSpec, Config, plain_rope
from engine.graph.scopes import CyclicSpec


def spec(config: Config) -> ArchSpec:
    heads, shared = config.positive("num_attention_heads"), config.positive("n_shared_head", 8)
    head_dim, traditional = config.even_head_dim(), config.flag("rope_traditional", False)
    if heads % shared:
        raise config.invalid("n_shared_head", shared, f"a divisor of num_attention_heads={heads}")
    rope = plain_rope(head_dim, config.number("rope_theta", 10000), traditional)
    attn = CyclicSpec(attention=config.attention(head_dim=head_dim, kv_heads=heads // shared, rope=rope))
    names = {"norms": config.norms("norm"), "layers_key": "model.layers.layers", "rules": ()}
    return config.decoder(attn, config.mlp(), flow="parallel_residual", tied=False, **names)
