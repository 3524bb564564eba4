"""Profiles: exact before family before universal, and refusals where an exact one does not fit."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import mlx.core as mx
import pytest

from engine import EngineConfig, errors, load, read_architecture, resolve_model
from engine.artifacts import profile
from engine.artifacts.profile import EXACT, Exact, config_sha256, resolve_profile, tensor_bytes, tensors_sha256

IDS = [5, 9, 30, 31, 2, 77]


def copy(folder: Path, target: Path, edit: Callable[[dict[str, Any]], None]) -> Path:
    """A copy of a model folder with another config.json."""
    shutil.copytree(folder, target)
    config = json.loads((target / "config.json").read_text())
    edit(config)
    (target / "config.json").write_text(json.dumps(config))
    return target


@pytest.fixture
def pinned(monkeypatch: pytest.MonkeyPatch, llama_folder: Path) -> Path:
    """The tiny llama with an exact profile."""
    key = (config_sha256(llama_folder), tensors_sha256(llama_folder))
    entry = Exact(
        name="tiny", family="llama", tensor_bytes=tensor_bytes(llama_folder), dtypes=("auto",), why="it is a test"
    )
    monkeypatch.setattr(profile, "EXACT", {key: entry})
    return llama_folder


def test_exact_before_family(pinned: Path) -> None:
    found = read_architecture(pinned).profile
    assert (found.kind, found.name, found.family) == ("exact", "tiny", "llama")
    assert read_architecture(pinned, "family").profile.kind == "family"
    with load(pinned) as engine:
        assert engine.profile == found


def test_what_an_exact_profile_allows_is_held_at_load(pinned: Path) -> None:
    with pytest.raises(errors.InvalidValue, match=r"dtype='float16'.*tiny: it is a test"):
        load(pinned, dtype="float16")
    with load(pinned, dtype="float16", profile="family") as engine:
        assert engine.config.dtype == "float16"


def test_an_exact_profile_whose_config_differs_refuses(pinned: Path, tmp_path: Path) -> None:
    other = copy(pinned, tmp_path / "other", lambda config: config.update(rope_theta=5.0))
    with pytest.raises(errors.ProfileMismatch, match=r"tiny's, but config.json is not.*profile='family'"):
        load(other)
    assert read_architecture(other, "family").spec.layers[0].attention.rope.base == 5.0
    same = copy(pinned, tmp_path / "same", lambda config: config.update(dict(reversed(config.items()))))
    assert (same / "config.json").read_bytes() != (pinned / "config.json").read_bytes()
    assert read_architecture(same).profile.kind == "exact"


def test_other_weights_are_the_familys(pinned: Path, tmp_path: Path) -> None:
    other = copy(pinned, tmp_path / "other", lambda config: None)
    weights = mx.load(str(pinned / "model.safetensors"))
    assert isinstance(weights, dict)
    weights["model.norm.weight"] = weights["model.norm.weight"] + 1
    mx.save_safetensors(str(other / "model.safetensors"), weights)
    assert tensor_bytes(other) == tensor_bytes(pinned)
    assert read_architecture(other).profile.kind == "family"


def test_the_fingerprint_sees_neither_shards_nor_order(llama_folder: Path, tmp_path: Path) -> None:
    split = copy(llama_folder, tmp_path / "split", lambda config: None)
    weights = mx.load(str(split / "model.safetensors"))
    assert isinstance(weights, dict)
    mx.eval(weights)
    (split / "model.safetensors").unlink()
    names = sorted(weights, reverse=True)
    for number, part in enumerate((names[:7], names[7:])):
        mx.save_safetensors(str(split / f"model-{number}.safetensors"), {name: weights[name] for name in part})
    assert tensors_sha256(split) == tensors_sha256(llama_folder)
    renamed = {("x" if name == names[0] else name): array for name, array in weights.items()}
    (split / "model-1.safetensors").unlink()
    mx.save_safetensors(str(split / "model-0.safetensors"), renamed)
    assert tensors_sha256(split) != tensors_sha256(llama_folder)


def test_universal_only_by_name_and_only_for_what_no_family_reads(llama_folder: Path, tmp_path: Path) -> None:
    unknown = copy(llama_folder, tmp_path / "m", lambda config: config.update(model_type="llamma"))
    with pytest.raises(errors.UnknownModelType, match=r"unknown 'llamma'; near it: .*llama.*profile='universal'"):
        load(unknown)
    with load(unknown, profile="universal") as ours, load(llama_folder) as llama:
        assert ours.profile.kind == "universal"
        assert mx.abs(ours.logits(IDS) - llama.logits(IDS)).max().item() == 0
    with pytest.raises(errors.InvalidValue, match="llama has a family file of its own"):
        load(llama_folder, profile="universal")
    with pytest.raises(errors.InvalidValue, match="profile='exactly'"):
        EngineConfig(model="m", profile="exactly")


@pytest.mark.parametrize(
    ("key", "value", "refused"),
    [
        ("hidden_act", "silu", False),
        ("hidden_act", "gelu", True),
        ("use_gate", True, True),
        ("use_gate", False, False),
        ("num_experts", 4, True),
        ("logit_scale", 1, False),
        ("logit_scale", 0.5, True),
    ],
)
def test_the_universal_reader_vouches_for_no_key_it_does_not_know(
    llama_folder: Path, tmp_path: Path, key: str, value: object, refused: bool
) -> None:
    folder = copy(llama_folder, tmp_path / "m", lambda config: config.update({"model_type": "gpt9", key: value}))
    assert [found.key for found in read_architecture(folder, "universal").unread.refused] == [key] * refused


def test_a_folder_without_weights_has_no_exact_profile(pinned: Path, tmp_path: Path) -> None:
    shutil.copy(pinned / "config.json", tmp_path)
    assert tensor_bytes(tmp_path) == 0
    assert read_architecture(tmp_path).profile.kind == "family"
    with pytest.raises(errors.InvalidValue, match="model_type"):
        resolve_profile(tmp_path, {"model_type": None}, {"llama"})


@pytest.mark.parametrize("content", [b"", b"\xff" * 40, (8).to_bytes(8, "little") + b"[1, 2, 3"])
def test_a_damaged_file_has_no_fingerprint(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "model.safetensors").write_bytes(content)
    with pytest.raises(errors.CorruptFile):
        tensor_bytes(tmp_path)


@pytest.mark.model
def test_the_built_in_models_have_exact_profiles() -> None:
    for name in ("smollm2-135m-instruct", "smollm2-135m-instruct-fp32"):
        found = read_architecture(resolve_model(name)).profile
        assert (found.kind, found.name, found.dtypes) == ("exact", name, ("auto", "float32"))
    assert len(EXACT) == 2
