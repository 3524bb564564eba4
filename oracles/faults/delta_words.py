"""mlx-lm: words in the configs of kimi_linear, kimi_k3 and bailing_moe_v3 that change nothing."""

from __future__ import annotations

from typing import Any

from oracles.faults.entry import Fault, Shown

WORDS: dict[str, dict[str, Any]] = {
    "kimi_linear": {"mla_use_nope": False, "use_grouped_topk": False},
    "kimi_k3-flat": {"use_grouped_topk": False},
    "bailing_moe_v3": {"norm_topk_prob": False, "moe_router_enable_expert_bias": False, "score_function": "softmax"},
}


def probe(model: str) -> Shown:
    """Run each model, with random weights, with and without its words."""
    import mlx.core as mx
    from mlx.utils import tree_flatten
    from mlx_lm.utils import _get_classes

    from oracles.recipe import find_recipe

    moved = []
    for recipe, words in WORDS.items():
        logits, groups = [], {"num_expert_group": 4, "topk_group": 2}
        for changes in ({}, words):
            config = {**find_recipe(recipe).config, **groups, **changes}
            model_class, arguments = _get_classes(config)
            mx.random.seed(1)
            built = model_class(arguments.from_dict(config))
            held = dict(tree_flatten(built.parameters(), destination={}))
            built.load_weights([(name, mx.random.normal(value.shape) / 8) for name, value in held.items()])
            logits.append(built(mx.array([[3, 1, 4, 1, 5, 9]])))
        if not mx.array_equal(*logits):
            moved.append(recipe)
    told = ", ".join(f"{recipe} {sorted(words)}" for recipe, words in WORDS.items())
    return Shown(not moved, f"logits that a word moves: {', '.join(moved) or 'none'}; asked: {told}")


FAULT = Fault(
    oracle="mlx-lm",
    where="models/kimi_linear.py and kimi_k3.py ModelArgs hold fields that nothing reads; bailing_moe_v3.py has none",
    what="a rope in latent attention, ranking without groups, other scores, unnormalised or unbiased: asked, not done",
    ours="normalisation and bias are as asked; a rope, ranking without the groups there are, other scores are refused",
    probe=probe,
)
