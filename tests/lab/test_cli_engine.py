"""The commands on the real engine, each in a process of its own: a tiny seeded llama with a character tokenizer."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from tokenizers import Tokenizer, decoders, models

from lab import cli
from oracles.tiny import tiny_model

ROOT = Path(__file__).resolve().parents[2]
CHARACTERS = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789 .,:\n"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    target = tmp_path_factory.mktemp("models") / "tiny"
    target.mkdir()
    for file in tiny_model("llama").iterdir():
        (target / file.name).write_bytes(file.read_bytes())
    vocab = {"<unk>": 0, "<eos>": 1, **{c: i + 2 for i, c in enumerate(CHARACTERS)}}
    tokenizer = Tokenizer(models.BPE(vocab=vocab, merges=[], unk_token="<unk>"))
    tokenizer.decoder = decoders.Fuse()
    tokenizer.add_special_tokens(["<unk>", "<eos>"])
    tokenizer.save(str(target / "tokenizer.json"))
    template = "{% for m in messages %}{{ m['role'] }}: {{ m['content'] }}\n{% endfor %}"
    config = {"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": "<eos>", "unk_token": "<unk>"}
    (target / "tokenizer_config.json").write_text(json.dumps({**config, "chat_template": template}))
    return target


def frontier(*line: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "lab.cli", *line],
        cwd=ROOT, input=stdin, capture_output=True, text=True, env={**os.environ, "FRONTIER_BLAS": "bundled"},
    )  # fmt: skip


def test_generate_repeats_with_its_seed_and_exits_cleanly(folder: Path) -> None:
    line = ("generate", "--model", str(folder), "-p", "hello", "-m", "12", "--temp", "1", "--ignore-eos", "--json")
    first = frontier(*line)
    assert (first.returncode, first.stderr.count("terminate called")) == (0, 0)
    document = json.loads(first.stdout)
    assert len(document["tokens"]) == document["usage"]["completion_tokens"] == 12
    again = frontier(*line, "--seed", str(document["plan"]["seed"]))
    assert again.returncode == 0
    assert json.loads(again.stdout)["tokens"] == document["tokens"]
    assert json.loads(again.stdout)["text"] in again.stderr


def test_a_lever_is_taken_only_where_it_is_applied(folder: Path) -> None:
    """--fuse reaches the engine, which refuses it for dense weights; a command that has no use for it does not."""
    asked = frontier("generate", "--model", str(folder), "-p", "hi", "--fuse", "quantized")
    assert (asked.returncode, asked.stderr.count("fuse='quantized' is not allowed")) == (2, 1)
    unknown = frontier("kl", "--model", str(folder), "--fuse", "quantized")
    assert (unknown.returncode, "unrecognized arguments: --fuse" in unknown.stderr) == (2, True)


def test_a_prefix_cache_that_holds_nothing_says_so(folder: Path) -> None:
    """Planted break: `generate --prefix-cache` of a few bytes did nothing, in silence."""
    line = ("generate", "--model", str(folder), "-p", "hello", "-m", "2", "--json", "--prefix-cache")
    small, large = frontier(*line, "10B"), frontier(*line, "1MB")
    assert (small.returncode, large.returncode) == (0, 0)
    assert "holds 0 B of 10 B at 0 boundaries; 1 not kept: no room for a chunk" in small.stderr
    assert json.loads(small.stdout)["prefix_cache"]["boundaries"] == 0
    assert json.loads(large.stdout)["prefix_cache"]["boundaries"] == 1
    assert "not kept" not in large.stderr


def test_chat_over_a_pipe(folder: Path) -> None:
    done = frontier("chat", "--model", str(folder), "-m", "5", "--json", stdin="hi\nyou\n")
    assert done.returncode == 0
    turns = json.loads(done.stdout)["turns"]
    assert [turn["user"] for turn in turns] == ["hi", "you"]
    assert turns[1]["usage"]["prompt_tokens"] > turns[0]["usage"]["prompt_tokens"]


def test_a_closed_pipe_is_quiet(folder: Path) -> None:
    line = [
        sys.executable,
        "-m",
        "lab.cli",
        "generate",
        "--model",
        str(folder),
        "-p",
        "hello",
        "-m",
        "400",
        "--ignore-eos",
    ]
    with subprocess.Popen(line, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.readline()
        process.stdout.close()
        said = process.stderr.read()
    assert process.returncode == 141
    assert "Traceback" not in said
    assert "terminate called" not in said


@pytest.mark.parametrize(
    ("flags", "named"),
    [
        (["--top-k", "101", "--temp", "1"], "top_k=101"),
        (["--logit-bias", "101:1"], "logit_bias token id=101"),
        (["--kv", "kv4:g128"], "128"),
        (["--dtype", "int8"], "dtype='int8'"),
    ],
)
def test_bad_values_are_one_line(
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    flags: list[str],
    named: str,
) -> None:
    monkeypatch.setenv("FRONTIER_BLAS", "bundled")
    assert cli.main(["generate", "--model", str(folder), "-p", "hello", *flags]) == 2
    out, err = capsys.readouterr()
    errors = [line for line in err.splitlines() if line.startswith("error: ")]
    assert out == ""
    assert len(errors) == 1
    assert named in errors[0]
    assert "Traceback" not in err


def test_unknown_model_names_the_known(tmp_path: Path) -> None:
    done = frontier("generate", "--model", str(tmp_path / "nothing"), "-p", "hello")
    assert done.returncode == 2
    assert "smollm2-135m-instruct" in done.stderr
    assert done.stderr.count("\n") == 1
