"""mlx-lm: a deepseek_v41's prompt cache is saved to a file that cannot be loaded."""

from __future__ import annotations

from oracles.faults.entry import Fault, Shown


def probe(model: str) -> Shown:
    """Save the caches of a run, and load them again."""
    import tempfile
    from pathlib import Path

    import mlx.core as mx
    from mlx_lm.models.cache import load_prompt_cache, save_prompt_cache
    from mlx_lm.models.deepseek_v41 import Model, ModelArgs

    from oracles.recipe import find_recipe

    built = Model(ModelArgs.from_dict(dict(find_recipe("deepseek_v41").config)))
    caches = built.make_cache()
    mx.eval(built(mx.array([[1, 2, 3, 4]]), caches))
    with tempfile.TemporaryDirectory() as folder:
        file = str(Path(folder) / "cache.safetensors")
        save_prompt_cache(file, caches)
        try:
            load_prompt_cache(file)
        except (KeyError, AttributeError) as error:
            return Shown(True, f"saved without an error; loading raises {type(error).__name__}: {error}")
    return Shown(False, "it loads")


FAULT = Fault(
    oracle="mlx-lm",
    where="models/cache.py load_prompt_cache looks the class up among its own; deepseek_v41.py LayerCache is not there",
    what="the file of a prompt cache is written and can never be read",
    ours="the state is a cache as any other: snapshot and restore hold for it",
    probe=probe,
)
