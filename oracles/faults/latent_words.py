"""mlx-lm: words in the configs of deepseek_v2, deepseek_v3, minicpm3 and youtu_llm that change nothing."""

from __future__ import annotations

from typing import Any

from oracles.faults.entry import Fault, Shown

WORDS: dict[str, dict[str, Any]] = {
    "deepseek_v2": {"norm_topk_prob": True, "scoring_func": "sigmoid"},
    "deepseek_v3": {"rope_interleave": False, "scoring_func": "softmax"},
    "minicpm3-tied": {"rope_scaling": {"type": "yarn", "factor": 4.0}},
}
YARN = {"type": "yarn", "factor": 4.0, "mscale": 1.0, "mscale_all_dim": 1.0}


def probe(model: str) -> Shown:
    """Run each model, with random weights, with and without its words; look at the scale that yarn gives youtu_llm."""
    import mlx.core as mx
    from mlx.utils import tree_flatten
    from mlx_lm.utils import _get_classes

    from oracles.recipe import find_recipe

    def built(config: dict[str, Any]) -> Any:
        model_class, arguments = _get_classes(config)
        return model_class(arguments.from_dict(config))

    moved = []
    for recipe, words in WORDS.items():
        logits = []
        for changes in ({}, words):
            mx.random.seed(1)
            one = built({**find_recipe(recipe).config, **changes})
            held: dict[str, mx.array] = dict(tree_flatten(one.parameters(), destination={}))
            one.load_weights([(name, mx.random.normal(value.shape) / 8) for name, value in held.items()])
            logits.append(one(mx.array([[3, 1, 4, 1, 5, 9]])))
        if not mx.array_equal(*logits):
            moved.append(recipe)
    plain, scaled = (
        built({**find_recipe("youtu_llm").config, "rope_scaling": scaling}).layers[0].self_attn.scale
        for scaling in (None, YARN)
    )
    told = ", ".join(f"{recipe} {sorted(words)}" for recipe, words in WORDS.items())
    seen = (
        f"logits that a word moves: {', '.join(moved) or 'none'}; asked: {told}; youtu_llm's scale {scaled / plain:g}x"
    )
    return Shown(not moved and plain == scaled, seen)


FAULT = Fault(
    oracle="mlx-lm",
    where="models/deepseek_v2.py, deepseek_v3.py: no such fields; minicpm3.py: the type is not looked at; "
    "youtu_llm.py: mscale_all_dim enters the rope and not the attention's scale, as it does in deepseek_v3.py",
    what="normalised scores, other scores, halves that turn, other scaled ropes, yarn's larger scale: asked, not done",
    ours="yarn's scale is applied; the others are refused by name",
    probe=probe,
)
