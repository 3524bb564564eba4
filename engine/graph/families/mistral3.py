"""mistral3, llava and pixtral: llama, ministral3 or mistral4 as the text tower of a vision wrapper."""

from engine.graph.families import llama, ministral3, mistral4
from engine.graph.families.common import Config
from engine.graph.families.towers import text_tower, unbounded
from engine.graph.spec import ArchSpec


def spec(config: Config) -> ArchSpec:
    text = config.inner("text_config").defaulted({"tie_word_embeddings": False})
    kind = text["model_type"]
    if kind == "mistral4":
        return text_tower(config, mistral4.spec(text))
    return text_tower(config, unbounded((ministral3 if kind == "ministral3" else llama).spec(text)))


def pixtral(config: Config) -> ArchSpec:
    text = config.inner("text_config", num_attention_heads=32).replaced(tie_word_embeddings=False)
    return text_tower(config, unbounded(llama.spec(text)))
