"""`frontier kl`: what it hands on, prints and returns."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import eval_fakes
import pytest
from eval_fakes import FakeArm

import evals.corpus
import evals.fidelity
from engine import errors
from evals.protocol import Plan
from lab.cli import main
from lab.commands.kl import check_boundaries
from oracles.contract import StackConfig
from oracles.tiny import tiny_model

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

        def decode(self, ids: Sequence[int]) -> str:
            return " ".join(map(str, ids))

    monkeypatch.setattr("evals.fidelity.run_fidelity", run)
    monkeypatch.setattr("engine.resolve_model", lambda name, progress=None: f"/models/{name}", raising=False)
    monkeypatch.setattr("evals.protocol.check_prefix", lambda folder, **_: None)
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


def test_rows_go_by_bytes_and_the_plot_is_written(
    fake: list[dict[str, Any]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(eval_fakes, "KV_BYTES", {"kv8": 16, "kv4": 8, "kv2": 4})
    file = tmp_path / "kl.svg"
    assert main(["kl", "--model", "m", "--candidate", "kv8,kv2,native,kv4", "--plot", str(file), *SMALL]) == 0
    out = capsys.readouterr().out
    results = last_line(out)["results"]
    assert [r["candidate"]["kv"] for r in results] == ["kv2", "kv4", "native", "kv8"]
    # Three layers' bytes over 16 tokens.
    assert [r["candidate_token_bytes"] for r in results] == [0.75, 1.5, 1.875, 3.0]
    assert "reference engine native, 2 KV bytes per token at 16 tokens" in out
    assert "not drawn, a KL of 0: native" in out
    svg = file.read_text()
    for words in ("kv2", "kv4", "kv8", "KV per token at 16 tokens, bytes", "KL, nats, 95 % interval"):
        assert f">{words}<" in svg
    assert ">native<" not in svg
    first = file.read_bytes()
    assert main(["kl", "--model", "m", "--candidate", "kv8,kv2,native,kv4", "--plot", str(file), *SMALL]) == 0
    assert file.read_bytes() == first
    png = tmp_path / "kl.png"
    assert main(["kl", "--model", "m", "--candidate", "kv8", "--plot", str(png), *SMALL]) == 0
    assert png.read_bytes().startswith(b"\x89PNG")


def test_l2_is_the_plan_in_the_models_folder(
    fake: list[dict[str, Any]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("engine.resolve_model", lambda name, progress=None: tmp_path, raising=False)
    assert main(["kl", "--model", "m", "--l2", *SMALL]) == 2
    assert "kv_config.json: not there" in capsys.readouterr().err
    (tmp_path / "kv_config.json").write_text(json.dumps([{"layer_idx": i, "bits": 4} for i in range(3)]))
    assert main(["kl", "--model", "m", "--l2", *SMALL]) == 0
    kv = f"mixed:{tmp_path / 'kv_config.json'}"
    assert [arm.kv for arm in fake[-1]["candidates"]] == [kv]
    assert f"--l2: --candidate {kv}" in capsys.readouterr().out


def test_flags_reach_the_arms(fake: list[dict[str, Any]]) -> None:
    flags = ["--stack", "mlx-lm", "--reference", "kv8", "--candidate", "kv4", "--dtype", "float32"]
    assert main(["kl", "--model", "m", *flags, "--protocol", "forward", *SIZE]) == 0
    want = {"stack": "mlx-lm", "model": "/models/m", "dtype": "float32", "blas": "bundled"}
    assert fake[0]["reference"] == StackConfig(**want, kv="kv8")
    assert fake[0]["candidates"] == [StackConfig(**want, kv="kv4")]
    assert fake[0]["protocol"] == "forward"


def test_candidates_may_have_other_weights_and_chunks(fake: list[dict[str, Any]]) -> None:
    flags = ["--candidate-model", "packed", "--candidate-dtype", "bfloat16", "--chunk", "64", "--candidate-chunk", "32"]
    assert main(["kl", "--model", "m", *flags, *SMALL]) == 0
    assert fake[0]["reference"] == StackConfig(stack="engine", model="/models/m", chunk=64, blas="bundled")
    want = StackConfig(stack="engine", model="/models/packed", dtype="bfloat16", chunk=32, blas="bundled")
    assert fake[0]["candidates"] == [want]


def test_the_largest_kl_is_shown_with_its_text(fake: list[dict[str, Any]], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["kl", "--model", "m", "--candidate", "kv2", *SMALL]) == 0
    out = capsys.readouterr().out
    (result,) = last_line(out)["results"]
    worst = result["worst"]
    assert [place["kl"] for place in worst] == sorted((place["kl"] for place in worst), reverse=True)
    assert worst[0]["kl"] == result["report"]["kl_max"]
    assert 12 <= worst[0]["position"] < 16  # the tail is what counts
    assert f"in text {worst[0]['sequence']} at {worst[0]['position']}: " in out
    assert len(result["kl_by_position"]) == 4
    assert sum(result["kl_by_position"]) / 4 == pytest.approx(result["report"]["kl"]["value"])


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


def test_layers_are_a_table_and_the_plot_has_a_panel_of_each_breakdown(
    fake: list[dict[str, Any]], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "kl.svg"
    flags = ["--candidate", "kv8,kv4", "--layers", "--lens", "--plot", str(file)]
    assert main(["kl", "--model", "m", *flags, *SMALL]) == 0
    out = capsys.readouterr().out
    assert (fake[0]["layers"], fake[0]["lens"]) == (True, True)
    results = last_line(out)["results"]
    for result in results:
        noise = {"kv8": 0.01, "kv4": 0.2}[result["candidate"]["kv"]]
        assert [layer["layer"] for layer in result["layers"]] == [-1, 0, 1, 2]
        found = [layer["error"]["value"] for layer in result["layers"]]
        # float32 streams of the stand-in
        assert found == pytest.approx([0, noise, 2 * noise, 3 * noise], rel=1e-5)
        assert result["layers"][-1]["lens_kl"]["value"] == pytest.approx(result["report"]["kl"]["value"], rel=1e-12)
        assert set(result["layers"][2]["error_by_domain"]) == {"prose", "code", "chat", "tools"}
        assert [(s["first"], s["last"]) for s in result["kl_by_span"]] == [(12, 12), (13, 13), (14, 14), (15, 15)]
        assert result["kl_by_domain"]["prose"]["low"] is None  # one text of each domain
    assert re.search(r"embedding +0 +0 to 0 +\+0 ", out)
    assert "largest step: layer" in out
    svg = file.read_text()
    for words in (
        "position in the text, tokens", "domain", "prose", "code", "chat", "tools", "after layer", "emb.",
        "relative error of the stream, 95 % interval", "logit lens: KL, nats, 95 % interval",
        "KL at the worst tokens, nats",
    ):  # fmt: skip
        assert f">{words}<" in svg
    largest = max(results, key=lambda result: result["report"]["kl"]["value"])
    assert all(f" → '{place['context'][-1]}'<" in svg for place in largest["worst"])


def test_a_candidate_may_be_warm_and_is_then_the_reference_by_default(
    fake: list[dict[str, Any]], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["kl", "--model", "m", "--candidate-warm", "8", *SMALL]) == 0
    (result,) = last_line(capsys.readouterr().out)["results"]
    assert (fake[0]["reference_warm"], fake[0]["candidate_warm"]) == (0, 8)
    assert (result["candidate"]["kv"], result["candidate_warm"], result["report"]["kl"]["value"]) == ("native", 8, 0.0)


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
        (["--plot", "kl.pdf"], "ends in .png or .svg"),
        (["--plot", "/nowhere/kl.svg"], "a folder that is there"),
        (["--l1", "--candidate", "kv8"], "without --l1"),
        (["--chunk", "0"], "--chunk=0"),
        (["--candidate-chunk", "0"], "--candidate-chunk=0"),
        (["--save-reference", "f", "--candidate", "kv8"], "not together with --save-reference"),
        (["--save-reference", "f", "--candidate-dtype", "float16"], "not together with --save-reference"),
        (["--save-reference", "f", "--reference-file", "g"], "not together with --save-reference"),
        (["--save-reference", "f", "--fidelity-class", "Q8"], "not together with --save-reference"),
        (["--reference-file", "g", "--reference", "kv8"], "not together with --reference-file"),
        (["--batch", "4"], "only with --protocol served"),
        (["--protocol", "served", "--batch", "1"], "group=1"),
        (["--candidate-batch", "2"], "with the served protocol alone"),
        (["--candidate-batch", "0", "--protocol", "served"], "--candidate-batch=0"),
        (["--candidate-warm", "0"], "--candidate-warm=0"),
        (["--candidate-warm", "120"], "candidate_warm=120"),
        (["--reference-warm", "8", "--protocol", "forward"], "only with the step protocol"),
        (["--candidate-warm", "8", "--protocol", "served"], "a multiple of 2048 tokens, the chunk, or 96"),
        (["--candidate-warm", "24", "--candidate-chunk", "16", "--protocol", "served"], "a multiple of 16 tokens"),
        (["--candidate-warm", "8", "--stack", "mlx-lm"], "the stack 'engine' alone"),
        (["--layers", "--protocol", "served"], "not built"),
        (["--lens"], "only with --layers"),
        (["--free", "0"], "--free=0"),
        (["--free", "8", "--protocol", "forward"], "only with the step protocol"),
        (["--free", "8", "--candidate-warm", "8"], "only with cold arms"),
        (["--reference-file", "g", "--free", "8"], "not together with --reference-file"),
        (["--layers", "--lens", "--stack", "mlx-lm"], "the stack 'engine' alone"),
        (["--save-reference", "f", "--layers"], "not together with --save-reference"),
        (["--save-reference", "f", "--reference-warm", "8"], "not together with --save-reference"),
        (["--reference-file", "g", "--layers"], "--layers=True .*not together with --reference-file"),
        (["--reference-file", "g", "--reference-warm", "8"], "not together with --reference-file"),
    ],
)
def test_bad_flags_are_one_line_and_exit_code_two(
    fake: list[dict[str, Any]], capsys: pytest.CaptureFixture[str], flags: list[str], match: str
) -> None:
    assert main(["kl", "--model", "m", "--blas", "bundled", *flags]) == errors.FrontierError.exit_code
    found = capsys.readouterr()
    assert re.search(match, found.err)
    assert "Traceback" not in found.err


@pytest.mark.parametrize(
    "flags",
    [
        ["--candidate-warm", "120"],
        ["--reference-warm", "8", "--protocol", "forward"],
        ["--candidate-warm", "100", "--protocol", "served"],
        ["--candidate-warm", "8", "--stack", "mlx-lm"],
        ["--tail", "128"],
    ],
)
def test_a_wrong_prefix_is_refused_before_anything_is_fetched(
    fake: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch, flags: list[str]
) -> None:
    """Catches a check that waits for the model and its texts."""
    monkeypatch.setattr("engine.resolve_model", lambda *_, **__: pytest.fail("the model was fetched"), raising=False)
    assert main(["kl", "--model", "m", "--blas", "bundled", *flags]) == 2


def test_a_scheme_without_that_boundary_is_refused_before_loading(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Catches a prefix that only the loaded engine refuses: a packed cache is a boundary at its chunks alone."""
    folder = tiny_model("llama", dtype="float32", quant=None)
    arm = StackConfig(stack="engine", model=str(folder), kv="kv8", chunk=16)
    step = Plan("step", 64, 16)
    check_boundaries(step, [replace(arm, kv="native"), replace(arm, kv="kv8:on-write")], 8)
    check_boundaries(step, [arm], 16)
    check_boundaries(step, [arm], None)
    with pytest.raises(errors.InvalidValue, match="a multiple of 16 tokens, for kv=kv8 in chunks of 16"):
        check_boundaries(step, [arm], 8)


def test_a_tail_without_the_step_protocol_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["kl", "--protocol", "forward", "--tail", "8", "--blas", "bundled"]) == 2
    assert "--tail=8" in capsys.readouterr().err
