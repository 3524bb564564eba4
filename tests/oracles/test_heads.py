"""Heads that mlx-lm cannot load or run as they are stored: the same values under an untied head are its reference."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import mlx.core as mx
import pytest

from oracles.architectures import ArchRun, Planned, forced
from oracles.parity import EQUAL
from oracles.recipe import Form, find_recipe
from oracles.tiny import write_model


@pytest.fixture(scope="module")
def arch(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ArchRun]:
    with ArchRun(root=tmp_path_factory.mktemp("models")) as run:
        yield run


def built(arch: ArchRun, name: str, form: Form) -> Path:
    folder = arch.build(find_recipe(name), form)[0]
    assert isinstance(folder, Path)
    return folder


def changed(folder: Path, out: Path, head: str | None, **config: Any) -> Path:
    """The model of `folder` with `config` on top, and with its embedding as the head too, or (None) no head at all."""
    stored: Mapping[str, Any] = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    weights = dict(mx.load(str(folder / "model.safetensors")))
    table = "model.embed_tokens."
    if head is None:
        del weights["lm_head.weight"]
    else:
        weights |= {k.replace(table, f"{head}."): v for k, v in weights.items() if k.startswith(table)}
    write_model(out, {**stored, **config}, weights)
    return out


def equal(arch: ArchRun, name: str, ours: Path, theirs: Path) -> None:
    form, reference = Form(), Form(seed=1)
    probe = forced(find_recipe(name), 20, 7)
    planned = Planned(form=form, label="head", probe=probe, reference_form=reference)
    result = arch.judge(name, name, planned, {form: ours, reference: theirs})
    assert result.status == EQUAL, result.line()


def test_an_untied_minicpm_without_a_head_takes_its_embedding(arch: ArchRun, tmp_path: Path) -> None:
    headless = changed(built(arch, "minicpm", Form()), tmp_path / "headless", None)
    equal(arch, "minicpm", headless, headless)


def test_a_tied_minicpm_loads(arch: ArchRun, tmp_path: Path) -> None:
    tied = built(arch, "minicpm-tied", Form())
    # dim_model_base=64, the hidden size: an untied head divides by 1, as a tied one does not divide
    untied = changed(tied, tmp_path / "untied", "lm_head", tie_word_embeddings=False, dim_model_base=64)
    equal(arch, "minicpm-tied", tied, untied)


@pytest.mark.parametrize("quant", ["q4g32", "nvfp4"])
def test_a_packed_tied_head_is_multiplied_as_packed(arch: ArchRun, tmp_path: Path, quant: str) -> None:
    tied = built(arch, "llama4_text-tied", Form(quant=quant))
    untied = changed(tied, tmp_path / "untied", "output", tie_word_embeddings=False)
    equal(arch, "llama4_text-tied", tied, untied)
