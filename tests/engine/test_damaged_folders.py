"""Model folders that are damaged or contradict themselves are refused, with the file and the reason."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import mlx.core as mx
import pytest

from engine import dequantize_folder, errors, load
from oracles.tiny import tiny_model


@pytest.fixture
def copy(tmp_path: Path, llama_folder: Path) -> Path:
    return Path(shutil.copytree(llama_folder, tmp_path / "model"))


def _config(folder: Path, **changes: Any) -> None:
    path = folder / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


def _shared_bytes(folder: Path) -> None:
    """Two arrays of the header name the same bytes."""
    path = folder / "model.safetensors"
    raw = path.read_bytes()
    length = int.from_bytes(raw[:8], "little")
    header = json.loads(raw[8 : 8 + length])
    a, b = [n for n in header if n.endswith("self_attn.q_proj.weight")][:2]
    header[b]["data_offsets"] = header[a]["data_offsets"]
    text = json.dumps(header).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + raw[8 + length :])


def _same_key_twice(folder: Path) -> None:
    mx.save_safetensors(str(folder / "model-2.safetensors"), {"model.norm.weight": mx.ones((64,))})


def _index_names_more(folder: Path) -> None:
    index = {"weight_map": {"model.norm.weight": "model-00002-of-00002.safetensors"}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))


@pytest.mark.parametrize(
    ("damage", "error", "names"),
    [
        (lambda f: _config(f, eos_token_id="</s>"), errors.InvalidValue, "eos_token_id"),
        (lambda f: _config(f, eos_token_id=[1, 2.5]), errors.InvalidValue, "eos_token_id"),
        (lambda f: (f / "config.json").write_text("[" * 100000), errors.CorruptFile, "config.json"),
        (_shared_bytes, errors.CorruptFile, "share bytes"),
        (_same_key_twice, errors.CorruptFile, r"model\.norm\.weight, which another file"),
        (_index_names_more, errors.ModelNotFound, "model-00002-of-00002"),
        (lambda f: _config(f, num_hidden_layers=4000), errors.WeightsMismatch, r"missing 1000: model\.layers\."),
        (lambda f: _config(f, quantization={"mode": "fp5"}), errors.UnsupportedConfig, "fp5"),
    ],
)
def test_a_folder_that_contradicts_itself_is_refused(
    copy: Path, damage: Callable[[Path], None], error: type[Exception], names: str
) -> None:
    damage(copy)
    with pytest.raises(error, match=names):
        load(copy)


def test_unpacking_does_not_trust_a_config_that_the_shapes_deny(tmp_path: Path) -> None:
    folder = Path(shutil.copytree(tiny_model("llama", quant="q4g64"), tmp_path / "packed"))
    _config(folder, quantization={"group_size": 32, "bits": 4})
    with pytest.raises(errors.UnsupportedConfig, match="4 bits in groups of 32"):
        dequantize_folder(folder, tmp_path / "dense")
    assert not (tmp_path / "dense").exists()
