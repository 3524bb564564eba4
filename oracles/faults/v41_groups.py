"""mlx-lm: a deepseek_v41 whose layers share groups of several sizes reads keys that are not there."""

from __future__ import annotations

from oracles.faults.entry import Fault, Shown

# Layer 1 picks among groups of 2; layer 2 makes groups of 8 and takes those picks for its own.
SIZES = {
    "num_hidden_layers": 3,
    "compress_ratios": [0, 2, 8],
    "kv_source_layer_ids": [1, 2],
    "index_source_layer_ids": [1],
    "candidate_source_layer_id": -1,
}
PROMPT = 24


def probe(model: str) -> Shown:
    """Compare the rows that are read with those that are there, in the gather of a run."""
    import mlx.core as mx
    from mlx_lm.models import deepseek_v41

    from oracles.recipe import find_recipe

    worst, gather = (0, 0), deepseek_v41._gather_rows

    def watched(values: mx.array, indices: mx.array) -> mx.array:
        nonlocal worst
        last = int(indices.max().item())  # type: ignore[arg-type]
        if last - values.shape[1] > worst[0] - worst[1]:
            worst = (last, values.shape[1])
        return gather(values, mx.minimum(indices, values.shape[1] - 1))

    deepseek_v41._gather_rows = watched
    config = {**find_recipe("deepseek_v41").config, **SIZES}
    built = deepseek_v41.Model(deepseek_v41.ModelArgs.from_dict(config))
    mx.eval(built(mx.arange(PROMPT)[None]))
    return Shown(worst[0] >= worst[1] > 0, f"row {worst[0]} is read of {worst[1]} compressed keys, with no error")


FAULT = Fault(
    oracle="mlx-lm",
    where="models/deepseek_v41.py Attention: the picks of one layer are rows of another layer's compressed keys",
    what="where the two have other compress_ratios, memory behind the keys is attended",
    ours="compress_ratios that differ among layers which share are refused by name",
    probe=probe,
)
