"""`frontier kl`: what it hands on, prints and returns."""

from __future__ import annotations

import json
from typing import Any

import pytest
from eval_fakes import FakeArm

import evals.corpus
import evals.fidelity
from engine import errors
from lab.cli import main
from oracles.contract import StackConfig

CALLS: list[dict[str, Any]] = []


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """The command on stand-ins: no model, words for tokens, `CALLS` for what reached the run."""
    CALLS.clear()
    real = evals.fidelity.run_fidelity

    def run(reference: StackConfig, candidates: list[StackConfig], ids: Any, **options: Any) -> Any:
        CALLS.append({"reference": reference, "candidates": candidates, **options})
        return real(reference, candidates, ids, **options, start=FakeArm)

    class Tokens:
        def encode(self, text: str) -> list[int]:
            return [ord(c) % 40 for c in text]

    monkeypatch.setattr("evals.fidelity.run_fidelity", run)
    monkeypatch.setattr("engine.resolve_model", lambda name, progress=None: f"/models/{name}", raising=False)
    monkeypatch.setattr("engine.load_tokenizer", lambda folder: Tokens(), raising=False)
    return CALLS


def last_line(text: str) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(text.strip().splitlines()[-1])
    return document


SIZE = ["--sequences", "4", "--length", "16", "--blas", "bundled"]
SMALL = [*SIZE, "--tail", "4"]


def test_table_and_document_say_the_same(fake: list[dict[str, Any]], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["kl", "--model", "m", "--candidate", "kv8,kv4", *SMALL]) == 0
    out = capsys.readouterr().out
    document = last_line(out)
    assert [r["candidate"]["kv"] for r in document["results"]] == ["kv8", "kv4"]
    assert [f"{r['report']['counted']}/{r['report']['total']}" for r in document["results"]] == ["16/16", "16/16"]
    for result in document["results"]:
        assert f"{result['report']['kl']['value']:.3g}" in out
        assert set(result["kl_by_domain"]) == {"prose", "code", "chat", "tools"}
        assert result["corpus_sha256"] == evals.corpus.SHA256
    assert "16/16" in out
    assert fake[0]["reference"] == StackConfig(stack="engine", model="/models/m", kv="native", blas="bundled")
    assert (fake[0]["protocol"], fake[0]["tail"]) == ("step", 4)


def test_flags_reach_the_arms(fake: list[dict[str, Any]]) -> None:
    flags = ["--stack", "mlx-lm", "--reference", "kv8", "--candidate", "kv4", "--dtype", "float32"]
    assert main(["kl", "--model", "m", *flags, "--protocol", "forward", *SIZE]) == 0
    want = {"stack": "mlx-lm", "model": "/models/m", "dtype": "float32", "blas": "bundled"}
    assert fake[0]["reference"] == StackConfig(**want, kv="kv8")
    assert fake[0]["candidates"] == [StackConfig(**want, kv="kv4")]
    assert fake[0]["protocol"] == "forward"


def test_with_json_stdout_holds_the_document_alone(
    fake: list[dict[str, Any]], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["kl", "--model", "m", "--json", *SMALL]) == 0
    out = capsys.readouterr().out
    assert len(out.splitlines()) == 1
    assert json.loads(out)["ok"] is True


def test_a_failed_gate_is_exit_code_one_and_an_open_one_is_not(
    fake: list[dict[str, Any]], capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["kl", "--model", "m", *SMALL]
    assert main([*command, "--candidate", "kv2", "--fidelity-class", "QT"]) == 1
    failed = last_line(capsys.readouterr().out)
    assert (failed["ok"], failed["results"][0]["gate"]["status"]) == (False, "FAIL")
    assert main([*command, "--candidate", "kv8", "--fidelity-class", "QT"]) == 0
    assert last_line(capsys.readouterr().out)["results"][0]["gate"]["status"] == "UNDECIDED"  # 4 sequences


@pytest.mark.parametrize(
    ("flags", "match"),
    [
        (["--candidate", "kv9"], "kv='kv9' is not allowed"),
        (["--candidate", ""], "kv='' is not allowed"),
        (["--candidate", "kv8,kv8:g64"], "each scheme once"),
        (["--reference", "fp8"], "kv='fp8' is not allowed"),
        (["--sequences", "65"], "1..64"),
        (["--length", "1"], "length"),
        (["--tail", "128"], "tail=128"),
        (["--length", "9000"], "length=9001"),
    ],
)
def test_bad_flags_are_one_line_and_exit_code_two(
    fake: list[dict[str, Any]], capsys: pytest.CaptureFixture[str], flags: list[str], match: str
) -> None:
    assert main(["kl", "--model", "m", "--blas", "bundled", *flags]) == errors.FrontierError.exit_code
    found = capsys.readouterr()
    assert match in found.err
    assert "Traceback" not in found.err


def test_a_tail_without_the_step_protocol_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["kl", "--protocol", "forward", "--tail", "8", "--blas", "bundled"]) == 2
    assert "--tail=8" in capsys.readouterr().err
