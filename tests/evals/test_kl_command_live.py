"""`frontier kl` with nothing replaced: a tiny model with a tokenizer of characters, and real workers."""

from __future__ import annotations

import json
import shutil
import string
from pathlib import Path

import pytest

from lab.cli import main
from oracles.tiny import tiny_model

CHARACTERS = (string.ascii_letters + string.digits + string.punctuation + " \n")[:95]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny llama whose ids are characters; 0 is <unk>, 1 is <eos>."""
    from tokenizers import Tokenizer, decoders, models

    path = tmp_path_factory.mktemp("kl") / "tiny"
    shutil.copytree(tiny_model("llama"), path)
    vocab = {"<unk>": 0, "<eos>": 1, **{c: i + 2 for i, c in enumerate(CHARACTERS)}}
    tokenizer = Tokenizer(models.BPE(vocab=vocab, merges=[], unk_token="<unk>"))
    tokenizer.decoder = decoders.Fuse()
    tokenizer.save(str(path / "tokenizer.json"))
    kinds = {"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": "<eos>", "unk_token": "<unk>"}
    (path / "tokenizer_config.json").write_text(json.dumps(kinds))
    return path


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
