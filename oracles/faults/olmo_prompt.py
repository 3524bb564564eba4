"""mlx-lm: olmo fails on every prompt of two tokens, also where the package that it probes for is installed."""

from __future__ import annotations

from oracles.faults.entry import Fault, Shown


def probe(model: str) -> Shown:
    """Import the module beside an empty hf_olmo (it only asks whether that is there), and run two tokens."""
    import sys
    from types import ModuleType

    import mlx.core as mx

    from oracles.recipe import find_recipe

    sys.modules["hf_olmo"] = ModuleType("hf_olmo")
    from mlx_lm.models.olmo import Model, ModelArgs

    built = Model(ModelArgs.from_dict(dict(find_recipe("olmo").config)))
    try:
        mx.eval(built(mx.array([[1, 2]])))
    except (TypeError, ValueError) as error:
        return Shown(True, f"two tokens: {type(error).__name__}: {' '.join(str(error).split())[:120]}")
    return Shown(False, "two tokens run")


FAULT = Fault(
    oracle="mlx-lm",
    where='models/olmo.py attend: scores += mask, where the mask is the string "causal"; the import calls sys.exit',
    what="an olmo can only be fed one token at a time, and without hf_olmo its import ends the process",
    ours="olmo is known and refused by name: nothing there is to be equal to",
    probe=probe,
)
