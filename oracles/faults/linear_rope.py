"""mlx-lm: phi3 and nemotron die on linear rope scaling as transformers writes it, and phi3 drops types it lacks."""

from __future__ import annotations

from oracles.faults.entry import Fault, Shown

BASE = {
    "hidden_size": 32,
    "intermediate_size": 32,
    "num_attention_heads": 2,
    "num_key_value_heads": 2,
    "num_hidden_layers": 1,
    "vocab_size": 32,
}
PHI3 = {**BASE, "model_type": "phi3", "rms_norm_eps": 1e-5, "rope_scaling": {"type": "linear", "factor": 2.0}}
NEMOTRON = {
    **BASE,
    "model_type": "nemotron",
    "hidden_act": "relu2",
    "norm_eps": 1e-5,
    "rope_scaling": {"rope_type": "linear", "factor": 2.0},
}


def probe(model: str) -> Shown:
    """Build a phi3 and a nemotron that ask for linear scaling by a factor."""
    from mlx_lm.models import nemotron, phi3

    seen = []
    for module, config in ((phi3, PHI3), (nemotron, NEMOTRON)):
        try:
            module.Model(module.ModelArgs.from_dict(config))
        except (ValueError, KeyError) as error:
            seen.append(f"{config['model_type']} {config['rope_scaling']}: {type(error).__name__}: {error}")
    return Shown(len(seen) == 2, "; ".join(seen) or "both are built")


FAULT = Fault(
    oracle="mlx-lm",
    where="models/phi3.py asks every scaling for long_factor; models/nemotron.py allows rope_type and reads type",
    what="valid linear scaling is a bare ValueError or KeyError; phi3 drops yarn and other types with a printed line",
    ours="linear scaling is applied under either name; a type that the family lacks is refused by name",
    probe=probe,
)
