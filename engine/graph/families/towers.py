"""Text towers of vision wrappers: what the wrappers of mlx-lm share around an inner family, and most of them."""

from dataclasses import replace
from typing import Any

from engine.graph.families import family_spec
from engine.graph.families.common import ArchSpec, Config
from engine.graph.renames import Drop, Rename, Under, transposed_experts

AT = "language_model"
# The other towers, at the top or under `model.`.
_TOWERS = (
    r"^(model\.)?(visual|vision_tower|vision_model|vision_embedder|multi_modal_projector|mm_projector|audio_tower"
    r"|embed_audio|embed_vision)\."
)


def text_tower(config: Config, inner: ArchSpec) -> ArchSpec:
    """`inner` under `language_model.`. Hub layouts have it under `model.language_model.` with the head at the top,
    under `language_model.`, or at the top."""
    rules = (
        Drop((_TOWERS,)),
        Rename(r"^model\.language_model\.", f"{AT}.model."),
        Rename(rf"^(?!{AT}\.)", f"{AT}."),
        Under(AT, inner.rules),
    )
    return replace(inner, family=config["model_type"], at=AT, rules=rules)


def unbounded(inner: ArchSpec) -> ArchSpec:
    """The same with caches that keep every token; windows stay in the masks. Wrappers of mlx-lm without a make_cache of
    their own get these."""
    layers: list[Any] = [replace(layer, attention=replace(layer.attention, cache="dense")) for layer in inner.layers]
    return replace(inner, layers=tuple(layers))


def head_tied(config: Config, text: Config) -> Config:
    """The text tower's config with tie_word_embeddings of the outer one where it has none."""
    outer = config.get("tie_word_embeddings")
    return text if outer is None else text.defaulted({"tie_word_embeddings": outer})


def gemma3(config: Config) -> ArchSpec:
    return _gemma(config, "gemma3_text", kv_heads=4, vocab=262208)


def gemma4(config: Config) -> ArchSpec:
    return _gemma(config, "gemma4_text", kv_heads=1, vocab=262144)


def _gemma(config: Config, inner: str, kv_heads: int, vocab: int) -> ArchSpec:
    """With defaults of the wrapper's own."""
    text = config.inner("text_config", num_attention_heads=8, num_key_value_heads=kv_heads, vocab_size=vocab)
    text = text.replaced(vocab_size=config.read("vocab_size", text["vocab_size"]))
    return text_tower(config, family_spec(inner, text))


def mistral3(config: Config) -> ArchSpec:
    """mistral3 and llava: mistral4, ministral3 or llama."""
    text = config.inner("text_config").defaulted({"tie_word_embeddings": False})
    if text["model_type"] == "mistral4":
        return text_tower(config, family_spec("mistral4", text))
    inner = "ministral3" if text["model_type"] == "ministral3" else "llama"
    return text_tower(config, unbounded(family_spec(inner, text)))


def pixtral(config: Config) -> ArchSpec:
    text = config.inner("text_config", num_attention_heads=32).replaced(tie_word_embeddings=False)
    return text_tower(config, unbounded(family_spec("llama", text)))


def qwen2_vl(config: Config) -> ArchSpec:
    return text_tower(config, _qwen(config, "qwen2"))


def qwen3_vl(config: Config) -> ArchSpec:
    return text_tower(config, _qwen(config, "qwen3"))


def qwen3_vl_moe(config: Config) -> ArchSpec:
    inner = _qwen(config, "qwen3_moe")
    return text_tower(config, replace(inner, rules=(*transposed_experts("mlp", "switch_mlp"), *inner.rules)))


def _qwen(config: Config, inner: str) -> ArchSpec:
    """Its config is under text_config or is the whole."""
    return family_spec(inner, head_tied(config, config.inner("text_config")) if "text_config" in config else config)
