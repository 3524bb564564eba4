"""mlx-lm: an lfm2-vl as it is published does not load."""

from __future__ import annotations

from oracles.faults.entry import Fault, Shown
from oracles.recipe import find_recipe


def probe(model: str) -> Shown:
    """Read the names and the filters of an original checkpoint through `sanitize`."""
    import mlx.core as mx
    from mlx.utils import tree_flatten
    from mlx_lm.utils import _get_classes

    config = dict(find_recipe("lfm2-vl").config)
    model_class, arguments = _get_classes(config)
    built = model_class(arguments.from_dict(config))
    wanted = dict(tree_flatten(built.parameters()))
    original = {
        name.replace("language_model.model.", "model.language_model."): value.swapaxes(1, 2)
        if "conv.conv" in name
        else value
        for name, value in wanted.items()
    }
    read = built.sanitize({**original, "model.vision_tower.patch.weight": mx.zeros((4,))})
    missing = wanted.keys() - read.keys()
    narrow = next(value.shape for name, value in read.items() if "conv.conv" in name)
    return Shown(
        bool(missing) and narrow[1] == 1,
        f"after sanitize {len(missing)} of {len(wanted)} parameters are missing, and filters are {list(narrow)}",
    )


FAULT = Fault(
    oracle="mlx-lm",
    where="models/lfm2-vl.py sanitize: it drops two towers at the top, and never calls the text tower's sanitize",
    what="checkpoints with model.language_model, model.vision_tower and filters [C, 1, W] are refused",
    ours="they load, and give what the converted checkpoint gives",
    probe=probe,
)
