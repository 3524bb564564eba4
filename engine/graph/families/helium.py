"""helium: llama with the traditional rope, biases on q, k and v only; a head is stored even where it is tied."""

from engine.graph.families.common import ArchSpec, Config, Drop, plain_rope


def spec(config: Config) -> ArchSpec:
    head_dim, tied = config.even_head_dim(), config.tied()
    rope = plain_rope(head_dim, config.rope_base(), traditional=True)
    attn = config.attention(head_dim=head_dim, rope=rope, qkv_bias=config.flag("attention_bias"))
    rules = (Drop((r"^lm_head\.",)),) if tied else ()
    return config.decoder(attn, config.mlp(bias=config.flag("mlp_bias")), tied=tied, rules=rules)
