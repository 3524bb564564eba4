"""`frontier fit --check` on a real model. How near predictions come is a benchmark: `make fit-check`."""

from __future__ import annotations

import json

import pytest

from lab import cli
from oracles.tiny import tiny_model


def fits(capsys: pytest.CaptureFixture[str], *line: str) -> list[dict[str, float]]:
    code = cli.main(["fit", *line, "--check", "--json"])
    document = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert code == (0 if document["ok"] else 1)
    return document["fits"]


def test_a_check_prints_both_peaks(capsys: pytest.CaptureFixture[str]) -> None:
    line = (str(tiny_model("llama")), "--ctx", "400", "--chunk", "64", "--memory", "1GiB", "--kv", "native,kv4")
    for fit in fits(capsys, *line):
        assert fit["fits"]
        assert fit["measured_bytes"] > fit["weights_bytes"] + fit["kv_bytes"]
        assert fit["error"] == fit["peak_bytes"] / fit["measured_bytes"] - 1


def test_a_context_past_the_model_s_own_is_noted_and_not_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["fit", str(tiny_model("llama")), "--ctx", "5000", "--chunk", "64", "--memory", "1MB"]) == 1
    printed = capsys.readouterr().out
    assert "max_position_embeddings is 4096" in printed
    assert "does not fit into 1.0 MB" in printed
