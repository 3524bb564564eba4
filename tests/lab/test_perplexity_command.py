"""`frontier perplexity`: a number, the protocol that it belongs to, and what is refused."""

from __future__ import annotations

import json

import pytest

from lab import cli
from oracles.characters import character_model


def test_a_number_and_its_protocol(capsys: pytest.CaptureFixture[str]) -> None:
    line = ["perplexity", "--model", str(character_model("llama")), "--sequences", "2", "--length", "24"]
    found = {}
    for stack in ("engine", "mlx-lm"):
        assert cli.main([*line, "--stack", stack, "--blas", "bundled", "--json"]) == 0
        found[stack] = json.loads(capsys.readouterr().out.splitlines()[-1])
    ours = found["engine"]
    assert ours["protocol"] == "frozen-2x24-forward"
    assert ours["scored"] == 2 * 23
    assert ours["perplexity"] == found["mlx-lm"]["perplexity"]
    assert ours["perplexity"]["low"] < ours["perplexity"]["value"] < ours["perplexity"]["high"]


@pytest.mark.parametrize(
    ("words", "word"),
    [(("--corpus", "c4"), "wikipedia"), (("--tail", "4"), "--protocol step"), (("--sequences", "65"), "1..64")],
)
def test_bad_input_is_one_line(words: tuple[str, ...], word: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["perplexity", "--model", str(character_model("llama")), *words]) == 2
    assert word in capsys.readouterr().err
