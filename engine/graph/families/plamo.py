"""plamo: attention and MLP read the same norm in parallel; query head h reads key/value head h modulo their number."""

from engine.errors import InvalidValue
from engine.graph.scopes import CyclicSpec
from engine.graph.families.common import Config, plain_rope
from engine.graph.spec import ArchSpec, LayerSpec, Norms


def spec(config: Config) -> ArchSpec:
    heads, shared, head_dim = (
        config.positive("num_attention_heads"),
        config.positive("n_shared_head", 8),
        config.even_head_dim(),
    )
    if heads % shared:
        raise InvalidValue("config.json n_shared_head", shared, f"a divisor of num_attention_heads={heads}")
    rope = plain_rope(head_dim, config.number("rope_theta", 10000), config.flag("rope_traditional", False))
    layer = LayerSpec(
        attention=CyclicSpec(attention=config.attention(head_dim=head_dim, kv_heads=heads // shared, rope=rope)),
        mlp=config.mlp(),
        norms=Norms(pre_attn=config.rms("norm")),
        flow="parallel_residual",
    )
    return config.arch(layer, tied=False, layers_key="model.layers.layers", rules=())
