"""mlx-lm: hybrids of convolutions or recurrences crash where a config has no layer of one kind."""

from __future__ import annotations

from typing import Any

from oracles.faults.entry import Fault, Shown
from oracles.recipe import find_recipe

LAYERS = 2
CONFIGS: dict[str, dict[str, Any]] = {
    "lfm2": {"full_attn_idxs": []},
    "lfm2_moe": {"full_attn_idxs": [0, 1]},
    "recurrent_gemma": {"block_types": ["recurrent"]},
    "bailing_moe_linear": {"layer_group_size": LAYERS + 1},
}


def probe(model: str) -> Shown:
    """Build each with two layers, and run two tokens."""
    import mlx.core as mx
    from mlx_lm.utils import _get_classes

    seen = []
    for name, changes in CONFIGS.items():
        config = {**find_recipe(name).config, "num_hidden_layers": LAYERS, **changes}
        model_class, arguments = _get_classes(config)
        try:
            built = model_class(arguments.from_dict(config))
            mx.eval(built(mx.array([[1, 2]]), built.make_cache()))
        except (IndexError, ValueError) as error:
            seen.append(f"{name}: {type(error).__name__}: {error}")
    return Shown(len(seen) == len(CONFIGS), "; ".join(seen) or "all run")


FAULT = Fault(
    oracle="mlx-lm",
    where="models/lfm2.py, lfm2_moe.py, recurrent_gemma.py, bailing_moe_linear.py: masks and offsets are those of the "
    "first layer of a kind, which need not be there",
    what="an lfm2 of convolutions or of attention only, a recurrent_gemma without attention or shorter than its "
    "pattern, and a bailing_moe_linear of fewer layers than a group raise",
    ours="they run: masks are made for the layers that attend, and every state counts its tokens",
    probe=probe,
)
