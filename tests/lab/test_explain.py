"""`frontier models explain`: layers in ranges, every word of a spec, and what config.json holds besides."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from engine import errors
from lab.console import Output
from lab.explain import changed, explain, kinds, plain, ranges, words
from lab.graph_models import config_of


def folder_of(tmp_path: Path, model: str, **extra: object) -> str:
    config = config_of(model, "tiny") | {"num_hidden_layers": 6, **extra}
    (tmp_path / "config.json").write_text(json.dumps(config))
    return str(tmp_path)


def test_ranges_and_kinds() -> None:
    assert ranges([0, 1, 2, 4, 6, 7]) == "0-2, 4, 6-7"
    assert ranges([3]) == "3"
    assert kinds(["a", "a", "b", "a"]) == [([0, 1, 3], "a"), ([2], "b")]


def test_layers_are_told_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = folder_of(tmp_path, "gemma3_text", sliding_window_pattern=3)
    assert explain(model, "auto", Output(as_json=True)) == 0
    captured = capsys.readouterr()
    document = json.loads(captured.out)
    assert [kind["layers"] for kind in document["layers"]] == [[0, 1, 3, 4], [2, 5]]
    local, full = (kind["spec"]["attention"] for kind in document["layers"])
    assert (local["is"], local["window"], local["cache"]) == ("AttentionSpec", 64, "rotating")
    assert "window" not in full
    assert local["rope"]["base"] != full["rope"]["base"]
    assert document["profile"] == {
        "kind": "family",
        "name": "gemma3_text",
        "family": "engine/graph/families/gemma3_text.py",
        "dtypes": None,
    }
    assert len(document["caches"]) == 6
    assert "layers 0-1, 3-4: LayerSpec" in captured.err
    assert "window 64" in captured.err


def test_unread_keys_are_listed_and_refused_ones_end_in_1(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = folder_of(tmp_path, "llama", logit_scale=0.5, sliding_window=8, bos_token_id=1, spam="x")
    assert explain(model, "auto", Output(as_json=True)) == 1
    captured = capsys.readouterr()
    config = json.loads(captured.out)["config"]
    assert config["bookkeeping"] == ["eos_token_id", "bos_token_id"]
    assert [key["key"] for key in config["unread"]] == ["sliding_window", "spam"]
    assert [key["key"] for key in config["refused"]] == ["logit_scale"]
    assert "REFUSED: logit_scale = 0.5" in captured.err


def test_a_universal_reading_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = folder_of(tmp_path, "llama", model_type="gpt9")
    with pytest.raises(errors.UnknownModelType):
        explain(model, "auto", Output(as_json=False))
    assert explain(model, "universal", Output(as_json=False)) == 0
    out = capsys.readouterr().out
    assert "model_type gpt9, universal profile llama" in out
    assert "nothing has checked" in out


def test_words_leave_defaults_out_and_name_functions(tmp_path: Path) -> None:
    from engine import read_architecture

    spec = read_architecture(Path(folder_of(tmp_path, "cohere2"))).spec
    assert set(changed(spec.stem)) == set()
    assert "heads 4" in words(spec.layers[0].attention)
    assert words([1, {"a": None}]) == "[1, {a: None}]"
    assert words(len) == plain(len) == repr(len)
    assert words(folder_of) == "folder_of"
    json.dumps(plain(spec))
