"""`frontier kl` with nothing replaced: a tiny model with a tokenizer of characters, and real workers."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from lab.cli import main
from oracles.characters import character_model


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return character_model("llama", root=tmp_path_factory.mktemp("kl"))


SIZE = ["--sequences", "4", "--length", "24", "--tail", "8", "--blas", "bundled"]


def test_a_whole_run_prints_one_document_with_what_was_measured(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["kl", "--model", str(folder), "--candidate", "kv4", "--json", *SIZE]) == 0
    (kv4,) = json.loads(capsys.readouterr().out)["results"]
    assert kv4["report"]["kl"]["value"] > 0
    assert (kv4["reference_live"], kv4["candidate_live"]) == ("native", "affine4:g64")
    assert (kv4["report"]["counted"], kv4["report"]["total"]) == (32, 32)
    assert kv4["report"]["floor"]["kl_max"] == 0.0
    assert kv4["machine"].endswith("bundled")


@pytest.mark.matrix
def test_every_kind_of_scheme_is_live_where_it_is_scored(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    plan = folder / "kv_config.json"
    plan.write_text(json.dumps([{"layer_idx": 0, "bits": 8}, {"layer_idx": 2, "k_bits": 4, "v_bits": 2}]))
    live = {
        "kv8": "affine8:g64", "kv8/4:g32": "affine8/4:g32", "turbo:k8v3": "turbo:k8v3", "turbo:k4v4": "turbo:k4v4",
        "kv4:g32:on-write": "affine4:g32", "kv8:g64:skip": "affine8:g64", f"mixed:{plan}": "mixed",
    }  # fmt: skip
    assert main(["kl", "--model", str(folder), "--candidate", ",".join(live), "--json", *SIZE]) == 0
    results = json.loads(capsys.readouterr().out)["results"]
    assert {r["candidate"]["kv"].replace("kv8:skip", "kv8:g64:skip"): r["candidate_live"] for r in results} == live
    assert [r["candidate_token_bytes"] for r in results] == sorted(r["candidate_token_bytes"] for r in results)
    for result in results:
        assert (result["report"]["counted"], result["report"]["total"]) == (32, 32)
        assert result["report"]["kl"]["value"] > 0
        assert result["candidate_token_bytes"] == result["candidate_kv_bytes"] / 24 < result["reference_token_bytes"]


@pytest.mark.parametrize(
    ("flags", "code", "match"),
    [
        (["--candidate", "kv8:start=5000"], 3, "lever not applied"),
        (["--candidate", "kv8", "--length", "4000"], 2, "length=4001"),
    ],
)
def test_what_cannot_be_measured_is_refused_without_a_document(
    folder: Path, capsys: pytest.CaptureFixture[str], flags: list[str], code: int, match: str
) -> None:
    assert main(["kl", "--model", str(folder), *SIZE, *flags]) == code
    found = capsys.readouterr()
    assert match in found.err
    assert found.out == ""


@pytest.mark.parametrize(("candidate", "match"), [("kv9", "kv='kv9'"), ("kv8,kv8:g64", "each scheme once")])
def test_a_bad_candidate_is_refused_before_the_model_is_looked_for(
    candidate: str, match: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["kl", "--model", str(tmp_path / "none"), "--candidate", candidate, "--blas", "bundled"]) == 2
    assert match in capsys.readouterr().err
