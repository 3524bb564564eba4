"""gemma3: gemma3_text as the text tower of a vision wrapper, with defaults of its own."""

from engine.graph.families import gemma3_text
from engine.graph.families.common import Config
from engine.graph.families.towers import text_tower
from engine.graph.spec import ArchSpec


def spec(config: Config) -> ArchSpec:
    text = config.inner("text_config", num_attention_heads=8, num_key_value_heads=4, vocab_size=262208)
    return text_tower(config, gemma3_text.spec(text.replaced(vocab_size=config.read("vocab_size", text["vocab_size"]))))
