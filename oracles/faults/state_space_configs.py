"""mlx-lm: configs of mamba and mamba2 as transformers writes them do not load, or lose their epsilon."""

from __future__ import annotations

from oracles.faults.entry import Fault, Shown

EPS = 1e-3
# Fields of transformers 5's Mamba2Config that shape the graph.
CONFIG = {
    "model_type": "mamba2",
    "num_heads": 2,
    "head_dim": 16,
    "vocab_size": 32,
    "hidden_size": 16,
    "state_size": 16,
    "num_hidden_layers": 1,
    "layer_norm_epsilon": EPS,
    "conv_kernel": 4,
    "n_groups": 1,
    "use_bias": False,
    "use_conv_bias": True,
    "tie_word_embeddings": False,
    "time_step_limit": [0.0, {"__float__": "Infinity"}],
    "time_step_rank": 1,
}


def probe(model: str) -> Shown:
    """Build from the config, again with the width that mlx-lm asks for and does not use, and run a token."""
    import mlx.core as mx
    from mlx_lm.models.mamba2 import Model, ModelArgs

    seen = []
    try:
        Model(ModelArgs.from_dict(CONFIG))
    except TypeError as error:
        seen.append(str(error))
    built = Model(ModelArgs.from_dict({**CONFIG, "intermediate_size": 32}))
    try:
        mx.eval(built(mx.array([[1]]), built.make_cache()))
    except (TypeError, ValueError) as error:
        seen.append(f"time_step_limit: {type(error).__name__}")
    eps = built.layers[0].norm.eps
    return Shown(len(seen) == 2 and eps != EPS, f"{'; '.join(seen)}; layer_norm_epsilon {EPS}: layers have {eps:g}")


FAULT = Fault(
    oracle="mlx-lm",
    where="models/mamba2.py ModelArgs (intermediate_size, time_step_limit), ResidualBlock; models/mamba.py, every norm",
    what="a config without intermediate_size, which nothing uses, and an infinity as transformers 5 writes it raise; "
    "norms are built with an epsilon of 1e-5 whatever layer_norm_epsilon says (mamba2's last one excepted)",
    ours="both configs load, and layer_norm_epsilon is every norm's",
    probe=probe,
)
