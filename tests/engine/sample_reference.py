"""What mlx-lm's samplers and processors answer on a fixed grid; run as a script, in a process of its own.

The grid is data of this module, so that the test and the child see the same one. Output: one safetensors file.
"""

from __future__ import annotations

import sys
from typing import Any

import mlx.core as mx
import numpy as np

VOCAB = 211
DRAWS = 40
SEED = 1234567890123456789
XTC_SPECIAL = (3, 7, 198)
DTYPES = {"float32": mx.float32, "bfloat16": mx.bfloat16, "float16": mx.float16}
ROWS = ("smooth", "ties", "peaked")

# name -> SamplingParams fields; mlx-lm's names differ for temperature only
SAMPLERS: dict[str, dict[str, Any]] = {
    "greedy": {"temperature": 0.0},
    "plain": {"temperature": 1.0},
    "cool": {"temperature": 0.3},
    "hot": {"temperature": 2.5},
    "top_p": {"temperature": 0.7, "top_p": 0.8},
    "top_p_narrow": {"temperature": 1.0, "top_p": 0.05},
    "min_p": {"temperature": 1.0, "min_p": 0.2},
    "min_p_keep": {"temperature": 1.0, "min_p": 0.9, "min_tokens_to_keep": 5},
    "xtc": {"temperature": 1.0, "xtc_probability": 0.5, "xtc_threshold": 0.05},
    "xtc_always": {"temperature": 1.0, "xtc_probability": 1.0, "xtc_threshold": 0.0},
    "top_k": {"temperature": 1.0, "top_k": 5},
    "top_k_one": {"temperature": 0.01, "top_k": 1, "top_p": 0.8},
    "all": {
        "temperature": 0.8,
        "top_p": 0.9,
        "min_p": 0.02,
        "xtc_probability": 0.4,
        "xtc_threshold": 0.02,
        "top_k": 20,
    },
}
# (setting, rows, dtype) that also run compiled; each program costs a run of the C++ compiler on a CPU
FUSED = (("all", "ties", "float32"), ("all", "ties", "bfloat16"), ("cool", "smooth", "float16"))

PROCESSORS: dict[str, dict[str, Any]] = {
    "bias": {"logit_bias": {5: 1.3, 0: -100.0, 210: 0.1}},
    "bias_int": {"logit_bias": {5: 1, 9: -3}},
    "repetition": {"repetition_penalty": 1.7},
    "repetition_short": {"repetition_penalty": 0.6, "repetition_context_size": 3},
    "repetition_one": {"repetition_penalty": 1.0},
    "presence": {"presence_penalty": 0.37},
    "presence_negative": {"presence_penalty": -1.1, "presence_context_size": 1},
    "frequency": {"frequency_penalty": 0.37},
    "frequency_long": {"frequency_penalty": 0.11, "frequency_context_size": 64},
    "all": {
        "logit_bias": {17: 2.5, 5: -0.3},
        "repetition_penalty": 1.2,
        "presence_penalty": 0.4,
        "frequency_penalty": 0.15,
        "frequency_context_size": 40,
    },
}
HISTORIES: dict[str, list[int]] = {
    "empty": [],
    "one": [17],
    "repeated": [5, 5, 17, 5, 0, 210, 17],
    "long": [(i * i) % 23 for i in range(50)],
}


def logits(rows: str, dtype: str, draw: int) -> mx.array:
    """Row number `draw` of a kind: [1, VOCAB]."""
    values = np.random.default_rng([ROWS.index(rows), draw]).standard_normal(VOCAB).astype(np.float32)
    if rows == "ties":
        values = np.round(values * 2) / 2
    if rows == "peaked":
        values = values * 6
    return mx.array(values)[None].astype(DTYPES[dtype])


def main(out: str) -> None:
    from mlx_lm.sample_utils import make_logits_processors, make_sampler

    arrays: dict[str, mx.array] = {}

    def draws(label: str, name: str, rows: str, dtype: str) -> None:
        fields = dict(SAMPLERS[name])
        sampler = make_sampler(fields.pop("temperature"), xtc_special_tokens=list(XTC_SPECIAL), **fields)
        mx.random.seed(SEED)
        tokens = []
        for draw in range(DRAWS):
            x = logits(rows, dtype, draw)
            tokens.append(sampler(x - mx.logsumexp(x, keepdims=True)))
        arrays[label] = mx.concatenate(tokens)
        arrays[label + "/next"] = mx.random.uniform(0, 1)
        mx.eval(arrays)

    mx.disable_compile()
    for rows in ROWS:
        for dtype in DTYPES:
            for name in SAMPLERS:
                draws(f"sampler/{name}/{rows}/{dtype}", name, rows, dtype)
            for name, fields in PROCESSORS.items():
                for history, ids in HISTORIES.items():
                    x = logits(rows, dtype, 0)
                    for step in make_logits_processors(**fields):
                        x = step(mx.array(ids, dtype=mx.int32), x)
                    arrays[f"processor/{name}/{history}/{rows}/{dtype}"] = x
            x = logits(rows, dtype, 0)
            arrays[f"logprobs/{rows}/{dtype}"] = x - mx.logsumexp(x, keepdims=True)
    mx.enable_compile()
    for name, rows, dtype in FUSED:
        draws(f"fused/{name}/{rows}/{dtype}", name, rows, dtype)
    mx.save_safetensors(out, arrays)


if __name__ == "__main__":
    main(sys.argv[1])
