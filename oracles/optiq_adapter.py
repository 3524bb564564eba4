"""mlx-optiq as an oracle: its per-layer KV conversion under mlx-lm's sequential loop. Only for a worker's process.

Importing optiq replaces parts of mlx and mlx_lm, and installing a KV plan is global and final: one process, one plan.
"""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

import optiq.serve as optiq_serve
from mlx_lm.utils import load_config

from engine import errors, parse_kv
from oracles.contract import StackConfig
from oracles.live import read_kv_config
from oracles.mlx_lm_adapter import MlxLmStack

DISTRIBUTIONS = ("mlx", "mlx-lm", "mlx-optiq")


def load(config: StackConfig) -> MlxLmStack:
    """The stack "optiq": mixed KV per layer, uniform KV as a plan that names every layer, or native."""
    asked = parse_kv(config.kv)
    layers = int(load_config(Path(config.model))["num_hidden_layers"])
    if asked.kind == "native":
        return MlxLmStack(config, kv_bits=None, group_size=64, start=0, distributions=DISTRIBUTIONS)
    if asked.kind == "mixed":
        plan = read_kv_config(str(asked.path), layers)
    else:
        if asked.bits is None:
            raise errors.InvalidValue("kv", config.kv, "native, kv8, kv4 or mixed:<kv_config.json>")
        plan = dict.fromkeys(range(layers), (asked.bits, asked.group_size))
    if not plan:
        raise errors.InvalidValue("kv", config.kv, "a plan that names at least one layer")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "kv_config.json"
        entries = [{"layer_idx": i, "bits": bits, "group_size": group} for i, (bits, group) in plan.items()]
        path.write_text(json.dumps(entries), encoding="utf-8")
        optiq_serve.install_mixed_kv(optiq_serve._load_kv_config(str(path)), quantized_kv_start=asked.start)
    # The patched conversion reads the plan; any bits only switch it on.
    return MlxLmStack(config, kv_bits=8, group_size=64, start=asked.start, distributions=DISTRIBUTIONS)
