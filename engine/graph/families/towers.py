"""Text towers of vision wrappers: what the wrappers of mlx-lm share around an inner family."""

from dataclasses import replace
from typing import Any

from engine.graph.families.common import Config
from engine.graph.renames import Drop, Rename, Under
from engine.graph.spec import ArchSpec

AT = "language_model"
# The other towers, at the top or under `model.`.
_TOWERS = (
    r"^(model\.)?(visual|vision_tower|vision_model|vision_embedder|multi_modal_projector|mm_projector|audio_tower|embed_audio"
    r"|embed_vision)\."
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
