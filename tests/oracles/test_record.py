"""Goldens: recorded from a live scheme only, checked against both sides, damage noticed."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from engine import errors, machine
from oracles.client import Worker
from oracles.contract import SchemeNotLive, StackConfig
from oracles.record import (
    MANIFEST,
    GoldenSpec,
    comparable,
    read_golden,
    read_manifest,
    record,
    tiny_specs,
    verify,
    write_golden,
)
from oracles.tiny import FAMILIES, tiny_model

GOLDENS = Path(__file__).resolve().parents[2] / "goldens"
COMMITTED_LIMIT_BYTES = 5_000_000


def quiet(label: str, done: int, total: int | None) -> None:
    """No progress bar."""


def _spec(name: str) -> GoldenSpec:
    return next(spec for spec in tiny_specs() if spec.name == name)


def test_record_then_verify_is_equal(tmp_path: Path) -> None:
    names = ["llama-float32-kv8-sampled", "llama-float32-mixed-forced"]
    folder = record([_spec(name) for name in names], tmp_path, progress=quiet)
    assert folder.name == machine().key
    assert comparable(tmp_path)
    results = {result.name: result for result in verify(tmp_path, progress=quiet)}
    assert {name: (r.engine, r.oracle, r.ok) for name, r in results.items()} == {
        names[0]: ("equal", "equal", True),
        names[1]: ("equal", "equal", True),
    }
    entry = read_manifest(folder)["goldens"][names[1]]
    assert entry["kv_layers"] == ["affine8:g32", "native", "affine4:g32"]
    assert set(entry["versions"]) == {"mlx", "mlx-lm", "mlx-optiq"}
    assert {path.name for path in folder.iterdir()} == {MANIFEST, *(f"{name}.safetensors" for name in names)}


@pytest.mark.matrix
def test_a_changed_record_differs_on_both_sides(tmp_path: Path) -> None:
    folder = record([_spec("llama-float32-native-forced")], tmp_path, progress=quiet)
    manifest = read_manifest(folder)
    entry = manifest["goldens"]["llama-float32-native-forced"]
    entry["probe"]["fields"]["token_ids"][20] += 1
    (folder / MANIFEST).write_text(json.dumps(manifest), encoding="utf-8")
    (result,) = verify(tmp_path, progress=quiet)
    assert (result.engine, result.oracle, result.ok) == ("differs", "differs", False)
    assert result.engine_difference is not None
    assert (result.engine_difference.tensor, result.engine_difference.position) == ("logits", 20)


def test_a_scheme_that_was_not_live_is_not_recorded(tmp_path: Path) -> None:
    spec = replace(_spec("llama-float32-kv8-sampled"), kv="kv8:start=5000")
    model = tiny_model("llama")
    config = StackConfig(stack="mlx-lm", model=str(model), kv=spec.kv, chunk=7)
    with Worker(config) as worker:
        trace = worker.probe(spec.probe)
    with pytest.raises(SchemeNotLive, match="start not reached"):
        write_golden(tmp_path, spec, config, trace, model)
    assert list(tmp_path.iterdir()) == []


def test_the_committed_goldens_are_whole_and_small() -> None:
    folder = GOLDENS / "linux-x86_64-cpu-bundled"
    manifest = read_manifest(folder)
    assert {spec.name for spec in tiny_specs()} == set(manifest["goldens"])
    for name, entry in manifest["goldens"].items():
        assert read_golden(folder, name, entry).tensors
    assert {entry["family"] for entry in manifest["goldens"].values()} == set(FAMILIES)
    assert sum(path.stat().st_size for path in GOLDENS.rglob("*") if path.is_file()) < COMMITTED_LIMIT_BYTES


def test_damage_is_named(tmp_path: Path) -> None:
    source = GOLDENS / "linux-x86_64-cpu-bundled"
    name, entry = next(iter(read_manifest(source)["goldens"].items()))
    blob = bytearray((source / f"{name}.safetensors").read_bytes())
    with pytest.raises(errors.CorruptFile, match="not there"):
        read_golden(tmp_path, name, entry)
    blob[-1] ^= 1
    (tmp_path / f"{name}.safetensors").write_bytes(blob)
    with pytest.raises(errors.CorruptFile, match="sha256"):
        read_golden(tmp_path, name, entry)
    with pytest.raises(errors.CorruptFile, match="manifest"):
        read_manifest(tmp_path)


def test_another_machine_key_is_not_comparable(tmp_path: Path) -> None:
    (tmp_path / "darwin-arm64-apple-m4-pro").mkdir()
    assert not comparable(tmp_path)
