"""glm: llama with the traditional rope, gate and up in one matrix, biases on q, k and v only."""

from engine.graph.families.common import Config, arch, attention, even_head_dim, mlp, plain_rope, pre_norms, rope_base
from engine.graph.spec import ArchSpec, LayerSpec


def spec(config: Config) -> ArchSpec:
    head_dim = config.positive("head_dim", even_head_dim(config))
    rope = plain_rope(head_dim, rope_base(config, 10000.0), traditional=True)
    attn = attention(config, head_dim=head_dim, rope=rope, qkv_bias=config.flag("attention_bias", False))
    return arch(
        config, LayerSpec(attention=attn, mlp=mlp(config, up="gate_up_proj", fused=True), norms=pre_norms(config))
    )
