"""mlx-lm: words in the configs of models with an indexer that change nothing."""

from __future__ import annotations

from typing import Any

from oracles.faults.entry import Fault, Shown

LINEAR = {"type": "linear", "factor": 4.0}
WORDS: dict[str, dict[str, Any]] = {
    "deepseek_v32": {"scoring_func": "softmax", "rope_interleave": False},
    "deepseek_v41": {"scoring_func": "tanh"},
    "minimax_m3_vl": {"scoring_func": "softmax", "rope_scaling": LINEAR},
}
NESTED = {"use_sparse_attention": False, "sparse_init_block": 2, "sparse_score_type": "mean"}


def _changed(config: Any, words: dict[str, Any]) -> dict[str, Any]:
    """The config with the words, in the text tower's where there is one."""
    if "text_config" not in config:
        return {**config, **words}
    text = config["text_config"]
    sparse = {**text["sparse_attention_config"], **NESTED}
    return {**config, "text_config": {**text, "sparse_attention_config": sparse, **words}}


def probe(model: str) -> Shown:
    """Run each model, with random weights, with and without its words; see which rope deepseek_v41 makes of another."""
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
        for config in (find_recipe(recipe).config, _changed(find_recipe(recipe).config, words)):
            mx.random.seed(1)
            one = built(dict(config))
            shapes: dict[str, mx.array] = dict(tree_flatten(one.parameters(), destination={}))
            one.load_weights([(name, mx.random.normal(value.shape) / 8) for name, value in shapes.items()])
            logits.append(one(mx.arange(24)[None]))
        if not mx.array_equal(*logits):
            moved.append(recipe)
    config = {**find_recipe("deepseek_v41").config, "rope_scaling": LINEAR}
    rope = type(built(config).layers[1].self_attn.rope).__name__
    told = ", ".join(f"{recipe} {sorted(words)}" for recipe, words in WORDS.items())
    seen = f"logits that a word moves: {', '.join(moved) or 'none'}; asked: {told} and {sorted(NESTED)}"
    return Shown(not moved and rope == "YarnRoPE", f"{seen}; deepseek_v41's linear rope is a {rope}")


FAULT = Fault(
    oracle="mlx-lm",
    where="models/deepseek_v32.py, minimax_m3_vl.py: no such fields; deepseek_v41.py: what is neither sigmoid nor "
    "softmax is sqrtsoftplus, and the type of rope_scaling is not looked at",
    what="other scores, halves that turn, a scaled rope, blocks that are always seen, no sparse attention: asked, "
    "not done",
    ours="minimax_m3_vl's rope is scaled and its indexers are left out; the others are refused by name",
    probe=probe,
)
