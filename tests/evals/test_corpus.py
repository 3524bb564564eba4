"""The frozen text set: pinned, balanced, varied, and long enough."""

from __future__ import annotations

import shutil
import zlib
from collections import Counter
from pathlib import Path

import pytest

from engine import errors, load_tokenizer, resolve_model
from evals.corpus import DOMAINS, corpus, corpus_file, domains, joined, prompt, read_corpus, sequences


class Words:
    """A tokenizer of words, so that no model is needed."""

    def encode(self, text: str) -> list[int]:
        return [zlib.crc32(word.encode()) for word in text.split()]


def test_the_set_has_sixteen_distinct_texts_of_each_domain() -> None:
    items = corpus()
    assert Counter(item.domain for item in items) == dict.fromkeys(DOMAINS, 16)
    assert len({item.text for item in items}) == len({item.id for item in items}) == 64


def test_the_texts_are_natural_enough_not_to_repeat_themselves() -> None:
    for item in corpus():
        packed = len(zlib.compress(item.text.encode(), 9)) / len(item.text.encode())
        assert packed > 0.28, (item.id, packed)
    for a in corpus():
        for b in corpus():
            if a.domain == b.domain == "prose" and a.id < b.id:
                shared = set(zip(a.text.split(), a.text.split()[1:], a.text.split()[2:], strict=False)) & set(
                    zip(b.text.split(), b.text.split()[1:], b.text.split()[2:], strict=False)
                )
                assert len(shared) < 8, (a.id, b.id, shared)


def test_the_first_n_are_balanced_and_the_same_each_time() -> None:
    assert domains(5) == (*DOMAINS, "prose")
    assert Counter(domains(16)) == dict.fromkeys(DOMAINS, 4)
    first = sequences(Words(), 8, 20)
    assert first == sequences(Words(), 64, 20)[:8]
    assert {len(ids) for ids in first} == {20}


def test_a_damaged_or_missing_file_is_refused(tmp_path: Path) -> None:
    copy = tmp_path / "corpus.jsonl"
    with pytest.raises(errors.CorruptFile, match="cannot be read"):
        read_corpus(copy)
    shutil.copy(str(corpus_file()), copy)
    assert read_corpus(copy) == corpus()
    copy.write_bytes(copy.read_bytes().replace(b"ferry", b"Ferry", 1))
    with pytest.raises(errors.CorruptFile, match="it is frozen"):
        read_corpus(copy)


@pytest.mark.parametrize("n", [0, 65, -1, True])
def test_a_number_of_sequences_outside_of_the_set_is_refused(n: int) -> None:
    for call in (lambda: domains(n), lambda: sequences(Words(), n, 8)):
        with pytest.raises(errors.InvalidValue, match=r"allowed: 1\.\.64"):
            call()


@pytest.mark.parametrize("length", [0, 5000, True])
def test_a_length_that_the_texts_do_not_have_is_refused(length: int) -> None:
    with pytest.raises(errors.InvalidValue, match="length="):
        sequences(Words(), 4, length)


@pytest.mark.model
def test_every_text_has_the_tokens_of_a_full_run_in_the_built_in_model() -> None:
    ids = sequences(load_tokenizer(Path(resolve_model("smollm2-135m-instruct"))), 64, 260)
    assert len({tuple(x) for x in ids}) == 64


def test_longer_sequences_join_texts_of_one_domain_and_share_none() -> None:
    words = Words()
    assert joined(words, 16, 50) == sequences(words, 16, 50)
    least = min(len(words.encode(item.text)) for item in corpus())
    long = joined(words, 16, least + 40)
    assert {len(ids) for ids in long} == {least + 40}
    texts = [words.encode(item.text) for item in corpus()]
    for domain in range(4):
        assert long[domain] == [*texts[domain], *texts[domain + 4]][: least + 40]
        assert long[domain + 4] == [*texts[domain + 8], *texts[domain + 12]][: least + 40]
    with pytest.raises(errors.InvalidValue, match="fewer than 64 sequences"):
        joined(words, 64, least + 40)


def test_a_long_prompt_goes_on_with_the_next_text() -> None:
    words = Words()
    texts = [list(words.encode(item.text)) for item in corpus()]
    assert prompt(words, 3, 20) == texts[3][:20]
    assert prompt(words, 63, len(texts[63]) + 5) == texts[63] + texts[0][:5]
    with pytest.raises(errors.InvalidValue, match="all texts together"):
        prompt(words, 0, 10**6)
    with pytest.raises(errors.InvalidValue, match="length"):
        prompt(words, 0, 0)
