"""mlx-lm: norm_topk_prob, decoder_sparse_step and mlp_only_layers in the config of a qwen2_moe are not read."""

from __future__ import annotations

from oracles.faults.entry import Fault, Shown

FIELDS = ("norm_topk_prob", "decoder_sparse_step", "mlp_only_layers")


def probe(model: str) -> Shown:
    """Look for the fields among those that the module takes from a config."""
    from dataclasses import fields

    from mlx_lm.models.qwen2_moe import ModelArgs

    known = {field.name for field in fields(ModelArgs)}
    unread = [name for name in FIELDS if name not in known]
    return Shown(unread == list(FIELDS), f"no fields of ModelArgs, so dropped from config.json: {', '.join(unread)}")


FAULT = Fault(
    oracle="mlx-lm",
    where="models/qwen2_moe.py ModelArgs: from_dict keeps only its own fields",
    what="scores are never normalised and every layer is a mixture, whatever the config says",
    ours="the three fields are applied; their defaults are what mlx-lm does",
    probe=probe,
)
