"""mlx-lm: of an original falcon_h1 checkpoint the factors on keys and values, and the groups of the norm, are lost."""

from __future__ import annotations

from oracles.faults.entry import Fault, Shown

SIZES = {
    "hidden_size": 32,
    "intermediate_size": 32,
    "num_hidden_layers": 1,
    "vocab_size": 32,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "head_dim": 16,
    "mamba_n_heads": 2,
    "mamba_d_head": 16,
    "mamba_d_ssm": 32,
    "mamba_d_state": 16,
    "mamba_n_groups": 2,
    "mamba_rms_norm": True,
    "mamba_norm_before_gate": True,
}
KEYS, INWARD = 0.25, 2.0


def probe(model: str) -> Shown:
    """Read an original layout, and see what became of ones in the projections; normalise two groups of unequal size."""
    import mlx.core as mx
    from mlx.utils import tree_flatten
    from mlx_lm.models.falcon_h1 import Model, ModelArgs

    built = Model(ModelArgs.from_dict({**SIZES, "key_multiplier": KEYS, "attention_in_multiplier": INWARD}))
    shapes = {name: value.shape for name, value in dict(tree_flatten(built.parameters())).items()}
    filters = "model.layers.0.mamba.conv1d.weight"
    shapes[filters] = tuple(shapes[filters][i] for i in (0, 2, 1))
    weights = {name: mx.ones(shape) for name, shape in shapes.items()}
    read = built.sanitize(weights)
    k, v = (read[f"model.layers.0.self_attn.{p}_proj.weight"][0, 0].item() for p in "kv")
    gate = mx.ones((1, 1, 32))
    uneven = mx.concatenate([mx.ones((1, 1, 16)), 9 * mx.ones((1, 1, 16))], axis=-1)
    normed = built.layers[0].mamba.norm(uneven, gate)
    together = bool(normed[0, 0, 0].item() < 0.5 * normed[0, 0, -1].item())
    return Shown(
        k == INWARD and v == 1.0 and together,
        f"key_multiplier {KEYS}, attention_in_multiplier {INWARD}: keys times {k:g}, values times {v:g}; "
        f"both groups under one mean: {together}",
    )


FAULT = Fault(
    oracle="mlx-lm",
    where="models/falcon_h1.py sanitize: looks for key_proj where checkpoints have k_proj, and leaves v_proj alone; "
    "FalconH1RMSNormGated does not use its n_groups; time_step_limit is (0, inf)",
    what="keys enter attention without key_multiplier, values without attention_in_multiplier; with mamba_rms_norm all "
    "groups are normalised as one; step sizes are not limited",
    ours="original checkpoints get all factors (what mlx-lm saved runs as it is), groups are normalised one by one, "
    "and time_step_limit holds",
    probe=probe,
)
