"""mlx-lm: an original gpt_oss checkpoint in 16 bit (not mxfp4) does not load."""

from __future__ import annotations

from oracles.faults.entry import Fault, Shown


def probe(model: str) -> Shown:
    """Give the original 16-bit keys of the experts to `sanitize`, and look for a name that the module has."""
    import mlx.core as mx
    from mlx_lm.models.gpt_oss import Model, ModelArgs

    sizes = {"hidden_size": 32, "intermediate_size": 32, "head_dim": 16, "vocab_size": 32, "num_hidden_layers": 2}
    heads = {"num_attention_heads": 2, "num_key_value_heads": 2, "num_local_experts": 2, "num_experts_per_tok": 1}
    at = "model.layers.0.mlp.experts."
    given = {at + "gate_up_proj": mx.zeros((2, 32, 64)), at + "down_proj": mx.zeros((2, 32, 32))}
    names = sorted(Model(ModelArgs.from_dict({**sizes, **heads})).sanitize(given))
    return Shown(not any(name.endswith("_proj.weight") for name in names), f"sanitize makes {', '.join(names)}")


FAULT = Fault(
    oracle="mlx-lm",
    where="models/gpt_oss.py sanitize: experts without _blocks keep a name without .weight, and are not transposed",
    what="an original gpt_oss in 16 bit fails its strict load: unknown keys",
    ours="the stacks are transposed, split and loaded",
    probe=probe,
)
