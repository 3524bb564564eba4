"""Text sets by name: pinned, long enough, cut the same for every command that reads them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from engine import errors
from evals import corpora
from evals.corpora import CORPORA, find_corpus, read_calls, read_tools, read_wikipedia, texts_sha256
from evals.corpus import SHA256, corpus, cut, first
from evals.rows import Row
from evals.sources import BFCL_EVAL, fetch


class Words:
    def encode(self, text: str) -> list[int]:
        return [len(word) for word in text.split()]


def test_the_projects_own_set_needs_no_archive() -> None:
    assert find_corpus("frozen").items() == corpus()
    assert find_corpus("frozen").sha256 == SHA256
    with pytest.raises(errors.UnknownField, match="wikipedia"):
        find_corpus("c4")


def test_texts_are_paragraphs_with_odd_titles_until_they_are_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(corpora.LEAST, "wikipedia", 40)
    pages = [[f"Title {i}", [f"Sentence {i} of a page. ", "More. "]] for i in range(40)]
    monkeypatch.setattr(corpora, "json_document", lambda _source, _path: [{"context": pages}, {"context": pages[:3]}])
    items = read_wikipedia()
    assert len(items) > 5
    assert len({item.text for item in items}) == len(items)
    assert all(len(item.text) >= 40 for item in items)
    assert sum(item.text.count("Sentence") for item in items) < 40  # the even ones are for training


def test_tools_are_definitions_and_their_question(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(corpora.LEAST, "tools", 10)
    row = {"id": "a", "function": [{"name": "f"}], "question": [[{"role": "user", "content": "Call f."}]]}
    monkeypatch.setattr(corpora, "read_rows", lambda _source, _path: [Row("x", row)])
    (item,) = read_tools()
    assert item.text == 'Tools: [{"name": "f"}]\n\nuser: Call f.'


def test_other_texts_than_the_pinned_ones_are_refused() -> None:
    changed = replace(CORPORA["wikipedia"], read=lambda: corpus()[:3])
    with pytest.raises(errors.CorruptFile, match="frozen"):
        changed.items()
    assert replace(changed, sha256=texts_sha256(corpus()[:3])).items() == corpus()[:3]
    assert texts_sha256(corpus()[:3]) != texts_sha256(corpus()[1:4])


def test_a_cut_is_the_first_tokens_of_each_text() -> None:
    items = first(corpus(), 4)
    assert [len(ids) for ids in cut(Words(), items, 9)] == [9] * 4
    with pytest.raises(errors.InvalidValue, match="shortest"):
        cut(Words(), items, 100_000)
    with pytest.raises(errors.InvalidValue, match=r"1\.\.64"):
        first(corpus(), 65)


@pytest.mark.matrix
@pytest.mark.parametrize("name", [name for name in CORPORA if name != "frozen"])
def test_the_archives_hold_the_pinned_texts(name: str) -> None:
    found = CORPORA[name]
    assert found.source is not None
    fetch(found.source)
    items = found.items()
    assert len(items) >= 12
    assert len({item.id for item in items}) == len(items)


def test_calls_go_through_the_models_template(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(corpora.LEAST, "calls", 14)
    function = {"name": "f", "description": "d", "parameters": {"type": "dict", "properties": {}, "required": []}}
    rows = [
        Row("x", {"id": name, "function": [function], "question": [[{"role": "user", "content": f"Call {name}."}]]})
        for name in ("a", "b", "c", "d")
    ]
    monkeypatch.setattr(corpora, "read_rows", lambda _source, _path: rows)
    items = read_calls()
    assert len(items) == 2

    class Chats(Words):
        def apply_chat_template(self, messages: Any, tools: Any, **_: Any) -> list[int]:
            assert tools[0]["function"]["parameters"]["type"] == "object"
            return [len(messages), len(messages[0]["content"])]

    assert cut(Chats(), items, 4) == [[1, 7, 1, 7]] * 2
    with pytest.raises(errors.InvalidValue, match="shortest"):
        cut(Chats(), items, 5)


@pytest.mark.matrix
def test_calls_are_the_pinned_ones() -> None:
    fetch(BFCL_EVAL)
    assert len(find_corpus("calls").items()) == 64
