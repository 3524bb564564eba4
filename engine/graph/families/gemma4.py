"""gemma4: gemma4_text as the text tower of a vision and audio wrapper, with defaults of its own."""

from engine.graph.families import gemma4_text
from engine.graph.families.common import Config
from engine.graph.families.towers import text_tower
from engine.graph.spec import ArchSpec


def spec(config: Config) -> ArchSpec:
    text = config.inner("text_config", num_attention_heads=8, num_key_value_heads=1, vocab_size=262144)
    return text_tower(config, gemma4_text.spec(text.replaced(vocab_size=config.read("vocab_size", text["vocab_size"]))))
