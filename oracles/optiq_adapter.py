"""mlx-optiq as an oracle: its per-layer KV conversion under mlx-lm's sequential loop. Only for a worker's process.

Importing optiq replaces parts of mlx and mlx_lm, and installing a KV plan is global and final: one process, one plan.
"""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

import mlx.core as mx
import numpy as np
import optiq.serve as optiq_serve
from mlx_lm.models.base import scaled_dot_product_attention
from mlx_lm.models.cache import RotatingKVCache
from mlx_lm.utils import load_config
from optiq.runtime.kv.rotating import RotatingQuantizedKVCache, quantize_cache_layer

from engine import errors, parse_kv
from oracles.contract import StackConfig
from oracles.mlx_lm_adapter import MlxLmStack, add_cache_kind

DISTRIBUTIONS = ("mlx", "mlx-lm", "mlx-optiq")
SCALE = 0.125  # of queries over a ring that runs alone


def load(config: StackConfig) -> MlxLmStack:
    """The stack "optiq": mixed KV per layer, uniform KV as a plan that names every layer, or native."""
    asked = parse_kv(config.kv)
    if asked.kind == "native":
        return MlxLmStack(config, kv_bits=None, group_size=64, start=0, distributions=DISTRIBUTIONS)
    named = {i: each for i, each in enumerate(asked.layers(_layers(config))) if each is not None}
    if asked.on_write or any(each.turbo or each.bits != each.value_bits for each in named.values()):
        raise errors.InvalidValue("kv", config.kv, "native, kv8, kv4 or mixed:<kv_config.json> with one width a layer")
    plan = {i: (each.bits, each.group_size) for i, each in named.items()}
    if not plan:
        raise errors.InvalidValue("kv", config.kv, "a plan that names at least one layer")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "kv_config.json"
        entries = [{"layer_idx": i, "bits": bits, "group_size": group} for i, (bits, group) in plan.items()]
        path.write_text(json.dumps(entries), encoding="utf-8")
        optiq_serve.install_mixed_kv(optiq_serve._load_kv_config(str(path)), quantized_kv_start=asked.start)
    add_cache_kind(RotatingQuantizedKVCache, "rotating", "max_size", quantized=True)
    # The patched conversion reads the plan; any bits only switch it on.
    return MlxLmStack(config, kv_bits=8, group_size=64, start=asked.start, distributions=DISTRIBUTIONS)


def attend_ring(source: Path, target: Path) -> None:
    """What each call over a ring with kept tokens attends. No model's own caches keep any, so the ring runs alone.

    source: arrays "keys", "values" [1, K, N, D], "queries" [1, H, N, D], "calls", the lengths of the calls, and "ring":
    size, kept tokens, bits, group size, and the tokens from which it is packed. target: "out" [1, H, N, D].
    """
    given = mx.load(str(source))
    assert isinstance(given, dict)
    size, keep, bits, group_size, start = map(int, np.array(given["ring"]))
    cache, out, end = RotatingKVCache(max_size=size, keep=keep), [], 0
    for length in map(int, np.array(given["calls"])):
        begin, end = end, end + length
        queries, keys, values = (given[name][:, :, begin:end] for name in ("queries", "keys", "values"))
        mask = cache.make_mask(end - begin)
        keys, values = cache.update_and_fetch(keys, values)
        out.append(scaled_dot_product_attention(queries, keys, values, cache, scale=SCALE, mask=mask))
        if bits and cache.offset >= start:
            cache = quantize_cache_layer(cache, bits, group_size)
    mx.save_safetensors(str(target), {"out": mx.concatenate(out, axis=2)})


def _layers(config: StackConfig) -> int:
    """The number of layers, of a wrapper's text model too; optiq counts caches, as many in the models here."""
    found = load_config(Path(config.model))
    return int(found.get("text_config", found)["num_hidden_layers"])
