"""GGUF import: exact values, row order, per-module widths, and files that are not what they claim to be."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import gguf_files
import mlx.core as mx
import numpy as np
import pytest
from gguf import GGMLQuantizationType as Kind
from gguf_files import HEADS, HIDDEN, KV_HEADS, write_gguf

from engine import convert_gguf, dequantize_folder, errors, load
from engine.artifacts.checkpoint import read_config, read_weights
from engine.artifacts.gguf import read_gguf, repack
from engine.artifacts.gguf_llama import llama_config, llama_tensors

# Loads a folder with mlx-lm itself, strictly, and saves what its modules unpack to plus the logits of a few tokens.
PEER = """
import sys, mlx.core as mx, mlx.nn as nn
from mlx.utils import tree_flatten
from pathlib import Path
from mlx_lm.utils import load_model
model, _ = load_model(Path(sys.argv[1]), strict=True)
arrays = {"logits": model(mx.array([[5, 6, 7, 8, 9, 200, 201]]))[0].astype(mx.float32)}
for name, m in model.named_modules():
    if isinstance(m, (nn.QuantizedLinear, nn.QuantizedEmbedding)):
        args = dict(group_size=m.group_size, bits=m.bits, mode=m.mode)
        arrays[name + ".weight"] = mx.dequantize(m.weight, m.scales, m.biases, **args)
    elif "weight" in m:
        arrays[name + ".weight"] = m.weight
mx.save_safetensors(sys.argv[2], arrays)
"""


def hf_order(values: np.ndarray, heads: int) -> np.ndarray:
    """GGUF's rows (head, d/2, 2) read into (head, 2, d/2), written out row by row."""
    width = values.shape[0] // heads
    out = np.empty_like(values)
    for head in range(heads):
        for pair in range(width // 2):
            for half in range(2):
                out[head * width + half * (width // 2) + pair] = values[head * width + 2 * pair + half]
    return out


def expected(values: dict[str, np.ndarray], path: Path) -> dict[str, np.ndarray]:
    """The `gguf` package's values under mlx-lm's names and row order."""
    file = read_gguf(path)
    names = llama_tensors(file, llama_config(file))
    result = {}
    for name, array in values.items():
        heads = HEADS if "attn_q" in name else KV_HEADS if "attn_k" in name else 0
        result[names[name][0]] = hf_order(array, heads) if heads else array
    return result


def unpacked(folder: Path) -> dict[str, np.ndarray]:
    config, weights = read_config(folder), read_weights(folder)
    result = {}
    for name, array in weights.items():
        module, _, leaf = name.rpartition(".")
        if leaf == "weight" and f"{module}.scales" in weights:
            how = config["quantization"].get(module, config["quantization"])
            scales, biases = weights[f"{module}.scales"], weights[f"{module}.biases"]
            assert scales.dtype == biases.dtype == mx.float32
            array = mx.dequantize(array, scales, biases, group_size=how["group_size"], bits=how["bits"])
        if leaf == "weight":
            result[name] = np.array(array)
    return result


def assert_same(found: dict[str, np.ndarray], wanted: dict[str, np.ndarray]) -> None:
    assert found.keys() == wanted.keys()
    for name, array in wanted.items():
        assert found[name].dtype == np.float32, name
        assert np.array_equal(found[name], array), name


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path, dict[str, np.ndarray]]:
    """(GGUF file, its conversion, its values)."""
    folder = tmp_path_factory.mktemp("gguf")
    values = write_gguf(folder / "small.gguf")
    return folder / "small.gguf", convert_gguf(folder / "small.gguf", folder / "small"), values


@pytest.mark.parametrize("kind", [Kind.F32, Kind.F16, Kind.Q8_0, Kind.Q4_0, Kind.Q4_1])
def test_every_type_keeps_its_values(tmp_path: Path, kind: Kind) -> None:
    name = "blk.0.ffn_up.weight"
    values = write_gguf(tmp_path / "m.gguf", kinds={name: kind})
    tensor = next(t for t in read_gguf(tmp_path / "m.gguf").tensors if t.name == name)
    packed = repack(tensor)
    array = mx.array(packed.weight)
    if packed.bits is not None:
        scales, biases = mx.array(packed.scales), mx.array(packed.biases)
        array = mx.dequantize(array, scales, biases, group_size=32, bits=packed.bits)
    assert np.array_equal(np.array(array), values[name])


def test_extreme_blocks_keep_their_values(tmp_path: Path) -> None:
    """All 256 int8 and 16 nibble values, negative, tiny (subnormal f16) and huge scales."""
    from gguf.quants import dequantize

    from engine.artifacts.gguf import GgufTensor

    random = np.random.default_rng(1)
    for kind, size in ((Kind.Q8_0, 34), (Kind.Q4_0, 18), (Kind.Q4_1, 20)):
        raw = random.integers(0, 256, size=(8, 64 * size), dtype=np.uint8).reshape(8, 64, size)
        scales = np.array([6e-8, -6e-8, 1e-5, -1.0, 0.3, 3.14, 1000, 65504], dtype="<f2")
        raw[..., 0:2] = scales.view(np.uint8).reshape(8, 1, 2)
        if kind == Kind.Q4_1:
            raw[..., 2:4] = scales[::-1].copy().view(np.uint8).reshape(8, 1, 2)
        data = raw.reshape(8, -1)
        packed = repack(GgufTensor("x", kind, (8, 64 * 32), data))
        w, s, b = mx.array(packed.weight), mx.array(packed.scales), mx.array(packed.biases)
        ours = np.array(mx.dequantize(w, s, b, group_size=32, bits=packed.bits))
        assert np.array_equal(ours, dequantize(data, kind)), kind


def test_folder_holds_the_files_values(small: tuple[Path, Path, dict[str, np.ndarray]]) -> None:
    path, folder, values = small
    assert_same(unpacked(folder), expected(values, path))


def test_config_names_each_width(small: tuple[Path, Path, dict[str, np.ndarray]]) -> None:
    config = read_config(small[1])
    quantization = config["quantization"]
    assert (quantization["group_size"], quantization["bits"], quantization["mode"]) == (32, 4, "affine")
    assert quantization["model.embed_tokens"] == {"group_size": 32, "bits": 8, "mode": "affine"}
    assert quantization["model.layers.1.self_attn.v_proj"] is False
    assert config["mlx_frontier"]["imported_from"] == "gguf"
    assert config["mlx_frontier"]["scales"] == "float32"
    assert config["rms_norm_eps"] == 1e-5
    assert (config["head_dim"], config["tie_word_embeddings"]) == (HIDDEN // HEADS, True)


def test_mlx_lm_loads_it_and_agrees(small: tuple[Path, Path, dict[str, np.ndarray]], tmp_path: Path) -> None:
    path, folder, values = small
    out = tmp_path / "peer.safetensors"
    subprocess.run([sys.executable, "-c", PEER, str(folder), str(out)], check=True, timeout=120)
    peer = {name: np.array(array) for name, array in mx.load(str(out)).items()}
    theirs = peer.pop("logits")
    assert_same(peer, expected(values, path))
    with load(folder) as engine:
        ours = np.array(engine.logits([5, 6, 7, 8, 9, 200, 201], chunk=7))
    assert np.array_equal(ours, theirs)


def test_unpacked_folder_equals_the_packed(small: tuple[Path, Path, dict[str, np.ndarray]], tmp_path: Path) -> None:
    path, folder, values = small
    steps: list[tuple[str, int, int | None]] = []
    dense = dequantize_folder(folder, tmp_path / "dense", progress=lambda *step: steps.append(step))
    at_once = convert_gguf(path, tmp_path / "at-once", dequantize=True)
    for made in (dense, at_once):
        assert "quantization" not in read_config(made)
        assert read_config(made)["mlx_frontier"]["dequantized"] is True
        assert_same({k: np.array(v) for k, v in read_weights(made).items()}, expected(values, path))
        assert (made / "tokenizer.json").read_bytes() == (folder / "tokenizer.json").read_bytes()
    done = [step[1] for step in steps]
    assert done == sorted(done)
    assert steps[-1][1] == steps[-1][2]
    with pytest.raises(errors.InvalidValue, match="quantization"):
        dequantize_folder(dense, tmp_path / "again")


def test_sixteen_bits_are_refused_for_an_import(small: tuple[Path, Path, dict[str, np.ndarray]]) -> None:
    with pytest.raises(errors.InvalidValue, match="GGUF"):
        load(small[1], dtype="bfloat16")


def test_target_must_be_new(small: tuple[Path, Path, dict[str, np.ndarray]], tmp_path: Path) -> None:
    with pytest.raises(errors.InvalidValue, match="target"):
        convert_gguf(small[0], tmp_path)
    with pytest.raises(errors.InvalidValue, match="existing folder"):
        convert_gguf(small[0], tmp_path / "no" / "such")


@pytest.mark.parametrize(
    ("made", "error", "says"),
    [
        ({"architecture": "gemma"}, errors.UnsupportedConfig, "supported: llama"),
        ({"pre": "deepseek-v9"}, errors.UnsupportedConfig, "supported: gpt-2, smollm"),
        ({"tokenizer": "llama"}, errors.UnsupportedConfig, "supported: gpt2"),
        ({"kinds": {"blk.2.attn_k.weight": Kind.Q5_0}}, errors.UnsupportedConfig, "F32, F16, Q8_0, Q4_0, Q4_1"),
        ({"extra": {"llama.attention.sliding_window": 64}}, errors.UnsupportedConfig, "sliding_window"),
        ({"extra": {"llama.expert_count": 8}}, errors.UnsupportedConfig, "dense"),
        ({"extra": {"llama.rope.dimension_count": 8}}, errors.UnsupportedConfig, "head size"),
        ({"leave_out": "blk.1.ffn_up.weight"}, errors.WeightsMismatch, "missing 1: blk.1.ffn_up.weight"),
    ],
)
def test_what_cannot_be_kept_is_refused(
    tmp_path: Path, made: dict[str, object], error: type[Exception], says: str
) -> None:
    write_gguf(tmp_path / "m.gguf", **made)  # type: ignore[arg-type]
    with pytest.raises(error, match=says):
        convert_gguf(tmp_path / "m.gguf", tmp_path / "out")
    assert [p.name for p in tmp_path.iterdir()] == ["m.gguf"]


def test_truncated_files_are_corrupt(small: tuple[Path, Path, dict[str, np.ndarray]], tmp_path: Path) -> None:
    whole = small[0].read_bytes()
    for cut in [0, 3, 4, 11, 20, 100, *range(500, len(whole) - 1, len(whole) // 25), len(whole) - 33]:
        (tmp_path / "cut.gguf").write_bytes(whole[:cut])
        with pytest.raises(errors.CorruptFile):
            convert_gguf(tmp_path / "cut.gguf", tmp_path / "out")
    assert [p.name for p in tmp_path.iterdir()] == ["cut.gguf"]


def test_an_array_longer_than_the_file_is_named_at_once(
    small: tuple[Path, Path, dict[str, np.ndarray]], tmp_path: Path
) -> None:
    """The package's own reader would count through all of a damaged length, past the end of the file."""
    whole = bytearray(small[0].read_bytes())
    at = whole.index(b"tokenizer.ggml.token_type") + len(b"tokenizer.ggml.token_type") + 8  # array, of int32
    assert int.from_bytes(whole[at : at + 8], "little") == len(gguf_files.vocabulary())
    whole[at : at + 8] = (1_000_000).to_bytes(8, "little")
    (tmp_path / "long.gguf").write_bytes(whole)
    with pytest.raises(errors.CorruptFile, match="truncated or damaged: byte"):
        convert_gguf(tmp_path / "long.gguf", tmp_path / "out")


def test_damaged_headers_end_in_a_typed_error(small: tuple[Path, Path, dict[str, np.ndarray]], tmp_path: Path) -> None:
    """One byte of the header set to 0xFF, in many places: a model folder or a typed error, never anything else."""
    whole = small[0].read_bytes()
    end = whole.index(b"tokenizer.ggml.tokens") + 400
    failed = 0
    for at in range(4, end, 23):
        (tmp_path / "bad.gguf").write_bytes(whole[:at] + b"\xff" + whole[at + 1 :])
        try:
            convert_gguf(tmp_path / "bad.gguf", tmp_path / f"out{at}", dequantize=True)
        except errors.FrontierError:
            failed += 1
    assert failed > end // 23 // 2
    assert not list(tmp_path.glob(".*"))


def test_other_files_are_corrupt(tmp_path: Path) -> None:
    (tmp_path / "m.gguf").write_text(json.dumps({"not": "gguf"}))
    with pytest.raises(errors.CorruptFile, match="not a GGUF"):
        convert_gguf(tmp_path / "m.gguf", tmp_path / "out")
    with pytest.raises(errors.CorruptFile, match="no such file"):
        convert_gguf(tmp_path / "missing.gguf", tmp_path / "out")


def test_the_five_types_are_in_the_small_file() -> None:
    assert {gguf_files.kind_of(n).name for n in gguf_files.shapes()} == {"F32", "F16", "Q8_0", "Q4_0", "Q4_1"}
