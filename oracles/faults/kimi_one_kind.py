"""mlx-lm: a kimi_linear whose layers are all of one kind does not run."""

from __future__ import annotations

from oracles.faults.entry import Fault, Shown

KINDS = {"delta": [1, 2, 3, 4], "latent": []}


def probe(model: str) -> Shown:
    """Build and run models with delta layers only and with none."""
    import mlx.core as mx
    from mlx_lm.models.kimi_linear import Model, ModelArgs

    from oracles.recipe import find_recipe

    config, refusals = find_recipe("kimi_linear").config, {}
    for kind, layers in KINDS.items():
        linear = {**config["linear_attn_config"], "kda_layers": layers}
        try:
            mx.eval(Model(ModelArgs.from_dict({**config, "linear_attn_config": linear}))(mx.array([[1, 2]])))
        except (AttributeError, IndexError) as error:
            refusals[kind] = f"{type(error).__name__}: {error}"
    return Shown(refusals.keys() == KINDS.keys(), "; ".join(f"only {kind}: {text}" for kind, text in refusals.items()))


FAULT = Fault(
    oracle="mlx-lm",
    where="models/kimi_linear.py KimiLinearModel: the indices of the first layer of each kind are taken for granted",
    what="with kda_layers that name every layer, or none, it raises",
    ours="every such model runs",
    probe=probe,
)
