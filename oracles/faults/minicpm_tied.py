"""mlx-lm: no tied minicpm loads: its sanitize adds a head to every checkpoint without one."""

from __future__ import annotations

from oracles.faults.entry import Fault, Shown

CONFIG = {
    "model_type": "minicpm",
    "hidden_size": 32,
    "intermediate_size": 32,
    "dim_model_base": 32,
    "num_attention_heads": 2,
    "num_key_value_heads": 2,
    "num_hidden_layers": 1,
    "rms_norm_eps": 1e-5,
    "vocab_size": 32,
    "scale_depth": 1.4,
    "scale_emb": 12.0,
    "tie_word_embeddings": True,
}


def probe(model: str) -> Shown:
    """Give a tied model its own parameters, through sanitize and the strict load that every folder goes through."""
    from mlx.utils import tree_flatten
    from mlx_lm.models.minicpm import Model, ModelArgs

    built = Model(ModelArgs.from_dict(CONFIG))
    own = dict(tree_flatten(built.parameters(), destination={}))
    try:
        built.load_weights(list(built.sanitize(own).items()), strict=True)
    except ValueError as error:
        return Shown(True, f"its own parameters: ValueError: {' '.join(str(error).split())}")
    return Shown(False, "a tied model loads its own parameters")


FAULT = Fault(
    oracle="mlx-lm",
    where="models/minicpm.py sanitize: lm_head.weight is added without looking at tie_word_embeddings",
    what="a minicpm with tie_word_embeddings saves and converts, and can never be loaded again",
    ours="a tied checkpoint needs no head; one that is stored is left aside",
    probe=probe,
)
