"""exaone4: norms after the mixers and on heads; a pattern of letters L and G makes layers sliding, or global without
rope."""

from engine.errors import InvalidValue
from engine.graph.families.common import Config, arch, attention, mlp, qk_heads, rms, rope, sliding
from engine.graph.spec import ArchSpec, LayerSpec, Norms


def spec(config: Config) -> ArchSpec:
    pattern, head_dim = config.read("sliding_window_pattern", ""), config.positive("head_dim")
    if pattern and set(pattern) != {"L", "G"}:
        raise InvalidValue("config.json sliding_window_pattern", pattern, "null, or a string of the letters L and G")

    def layer(letter: str) -> LayerSpec:
        turning = None if letter == "G" else rope(config, head_dim, None)
        window = sliding(config) if letter == "L" else {}
        return LayerSpec(
            attention=attention(config, rope=turning, qk_norm=qk_heads(config), **window),
            mlp=mlp(config),
            norms=Norms(
                post_attn=rms(config, "post_attention_layernorm"), post_mlp=rms(config, "post_feedforward_layernorm")
            ),
        )

    made = {letter: layer(letter) for letter in set(pattern) or {""}}
    count = config.positive("num_hidden_layers")
    kinds = [pattern[i % len(pattern)] if pattern else "" for i in range(count)]
    return arch(config, [made[kind] for kind in kinds], tied=config.flag("tie_word_embeddings"))
