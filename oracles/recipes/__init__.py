"""The tiny configurations of mlx-lm's modules, by group: name -> "module:symbol" of a `dict[str, Recipe]`."""

GROUPS: dict[str, str] = {
    "conv": "oracles.recipes.conv:RECIPES",
    "delta": "oracles.recipes.delta:RECIPES",
    "dense1": "oracles.recipes.dense1:RECIPES",
    "dense2": "oracles.recipes.dense2:RECIPES",
    "kda": "oracles.recipes.kda:RECIPES",
    "latent": "oracles.recipes.latent:RECIPES",
    "looped": "oracles.recipes.looped:RECIPES",
    "moe1": "oracles.recipes.moe1:RECIPES",
    "moe2": "oracles.recipes.moe2:RECIPES",
    "sliding": "oracles.recipes.sliding:RECIPES",
    "sparse": "oracles.recipes.sparse:RECIPES",
    "ssm": "oracles.recipes.ssm:RECIPES",
}
