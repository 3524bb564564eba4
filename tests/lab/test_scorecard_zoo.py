"""The scorecard's zoo: which check of a model is shown, and that every file of the page says the same of it."""

from __future__ import annotations

import csv
import io
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from scorecard_fakes import KEY, fingerprint

from lab.scorecard.files import render
from lab.scorecard.load import keys_to_show, load
from lab.scorecard.runs import NothingMeasured
from lab.scorecard.zoo import ZooRun, read_zoo
from lab.store import Store
from lab.zoo.recipe import find_recipe

SKILLS = {"copy": 1.0, "recall": 0.25}
COMMAND = "frontier zoo check qwen3-1m --blas bundled"


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store.open(str(tmp_path / "lab.sqlite"))


def found(**changes: Any) -> dict[str, Any]:
    return {
        "bits_per_byte": 1.5,
        "perplexity": 22.0,
        "parameters": 853632,
        "bytes": 1712110,
        "sha256": "a" * 64,
        "skills": SKILLS,
        "below": ["recall"],
        **changes,
    }


def keep(store: Store, size: str, *untrue: str, key: str = KEY, name: str = "qwen3-1m", **changes: Any) -> None:
    ZooRun(store, fingerprint(key), size, 2.5).keep(find_recipe(name), COMMAND, found(**changes), untrue)


def test_a_quick_check_hides_a_full_one_only_with_other_weights_or_an_untrue_claim(store: Store) -> None:
    """Planted breaks: the newest row whatever it is; a full check of weights that are gone."""
    keep(store, "full")
    keep(store, "quick", bits_per_byte=1.6)
    assert [model.size for model in read_zoo(store, KEY)] == ["full"]
    keep(store, "quick", "bits_per_byte: the table says 1.5, measured 1.7", bits_per_byte=1.7)
    assert [(model.size, len(model.untrue)) for model in read_zoo(store, KEY)] == [("quick", 1)]
    keep(store, "quick", bits_per_byte=1.4, sha256="b" * 64)
    (shown,) = read_zoo(store, KEY)
    assert (shown.measured["bits_per_byte"], shown.untrue) == (1.4, ())


def test_a_database_with_nothing_but_the_zoo_has_a_page(store: Store) -> None:
    """Of the machine that checked it; another kind of machine shows none of it."""
    with pytest.raises(NothingMeasured):
        keys_to_show(store, None)
    keep(store, "quick")
    assert keys_to_show(store, None) == [KEY]
    assert read_zoo(store, "darwin-arm64-apple-m4") == []


def test_every_file_says_what_was_measured(store: Store) -> None:
    """Planted breaks: shares instead of percent, a row without its n-gram, an untrue claim that is only in one file."""
    claim = "sha256: the table says x, measured y"
    keep(store, "full")
    keep(store, "quick", claim, name="lora-lower", skills={}, bits_per_byte_own=1.6, bits_per_byte_own_of_base=2.2)
    files = {name: body.decode() for name, body in render(load(store, KEY)).items() if not name.endswith("png")}
    adapter, model = csv.DictReader(io.StringIO(files["zoo.csv"]))
    assert (model["model"], model["copy"], model["recall"], model["untrue"]) == ("qwen3-1m", "100.0", "25.0", "0")
    assert model["perplexity"] == "22.0"
    assert (model["bits_per_byte"], model["ngram_bits_per_byte"], model["command"]) == ("1.5", "2.5", COMMAND)
    assert (adapter["recall"], adapter["untrue"]) == ("", "1")
    for text in (files["scorecard.html"], files["scorecard.md"]):
        assert claim in text
        assert "1.600 bits per byte of its style, 2.200 without it" in text
        assert "claims that do not hold of lora-lower" in text
    assert [each["name"] for each in json.loads(files["scorecard.json"])["zoo"]] == ["lora-lower", "qwen3-1m"]


def test_a_page_without_a_zoo_has_no_part_for_it(store: Store) -> None:
    """A database from before keeps its page."""
    keep(store, "quick", key="darwin-arm64-apple-m4")
    keep(store, "quick")
    card = load(store, KEY)
    assert "zoo.csv" in render(card)
    files = render(replace(card, zoo=()))
    assert "zoo.csv" not in files
    assert b"zoo-part" not in files["scorecard.html"]
