"""mlx-lm: original checkpoints of kimi_vl, and of a deepseek_v3 with other than 61 layers, do not load."""

from __future__ import annotations

from oracles.faults.entry import Fault, Shown

FURTHER = "model.layers.3.eh_proj.weight"
REAL = "model.layers.61.input_layernorm.weight"


def probe(model: str) -> Shown:
    """Rename what the originals hold: keys and values in one projection, the layer after the last, layer 61 of more."""
    import mlx.core as mx
    from mlx_lm.utils import _get_classes

    from oracles.recipe import find_recipe

    def renamed(recipe: str, *names: str, **changes: int) -> list[str]:
        config = {**find_recipe(recipe).config, **changes}
        model_class, arguments = _get_classes(config)
        return sorted(model_class(arguments.from_dict(config)).sanitize(dict.fromkeys(names, mx.zeros((256, 64)))))

    joined = "language_model.model.layers.0.self_attn.kv_b_proj.weight"
    held = [
        renamed("kimi_vl", joined),
        renamed("deepseek_v3", FURTHER),
        renamed("deepseek_v3", REAL, num_hidden_layers=62),
    ]
    return Shown(held == [[joined], [FURTHER], []], f"after sanitize: kimi_vl {held[0]}, deepseek_v3 {held[1:]}")


FAULT = Fault(
    oracle="mlx-lm",
    where="models/kimi_vl.py sanitize: kv_b_proj is not cut; deepseek_v3.py sanitize: names that begin with "
    "model.layers.61 are dropped, whatever the number of layers",
    what="the strict load refuses the original's names, or misses a layer that was dropped",
    ours="keys and values are cut by heads; layers from num_hidden_layers on are dropped",
    probe=probe,
)
