"""Projections of families whose caches differ, against what a request left in them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from engine import SamplingParams, load
from oracles.client import Worker
from oracles.contract import StackConfig
from oracles.recipe import Form, find_recipe

# Rings, rings beside full layers and with sinks, chunks, latents, whole heads made of latents, keys of an indexer, keys
# that several layers read, states of one size beside keys and alone, states that grow, routing that reads arrays.
FAMILIES = (
    "gemma3_text", "gpt_oss", "llama4_text", "deepseek_v3", "minicpm3", "deepseek_v32", "gemma3n", "qwen3_next",
    "mamba2", "rwkv7", "recurrent_gemma", "baichuan_m1", "lfm2", "deepseek_v41", "longcat_flash_ngram", "Klear",
)  # fmt: skip
# Nothing of theirs can be packed: states, latents, or heads that groups of 32 do not divide.
UNPACKED = {
    "Klear",
    "gemma3n",
    "llama4_text",
    "minicpm3",
    "deepseek_v3",
    "deepseek_v32",
    "deepseek_v41",
    "longcat_flash_ngram",
    "mamba2",
    "rwkv7",
}
REQUESTS = ((1, 1), (2, 3), (70, 5))


@pytest.fixture(scope="module")
def builder() -> Iterator[Worker]:
    with Worker(StackConfig(stack="mlx-lm", model="", compile=False)) as worker:
        yield worker


@pytest.mark.parametrize("name", FAMILIES)
def test_a_projection_is_what_a_request_leaves(builder: Worker, name: str) -> None:
    folder = builder.make(find_recipe(name), Form())
    for kv in ("native",) if name in UNPACKED else ("native", "kv4:g32:skip"):
        with load(folder, kv=kv, prefill_chunk=16) as engine:
            for prompt, new in REQUESTS:
                ids = [2 + i % 90 for i in range(prompt)]
                done = engine.generate(ids, SamplingParams(max_tokens=new, ignore_eos=True))
                assert engine.project(prompt, new).per_layer == done.caches
                assert done.plan.kv_bytes == sum(layer.kv_bytes for layer in done.caches)  # counted, without arrays
