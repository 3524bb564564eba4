"""The order of the frozen text set, and which of a text's tokens are taken."""

from __future__ import annotations

import hashlib
from collections import Counter

import pytest

from engine import errors
from evals.corpus import DOMAINS, SHA256, corpus, corpus_file, domains, sequences


class Characters:
    def encode(self, text: str) -> list[int]:
        return [ord(c) for c in text]


def test_the_file_is_the_pinned_one_and_its_lines_end_plainly() -> None:
    data = corpus_file().read_bytes()
    assert hashlib.sha256(data).hexdigest() == SHA256
    assert b"\r" not in data  # a checkout that rewrote line ends would be refused
    assert data.endswith(b"}\n")


@pytest.mark.parametrize("n", range(4, 65, 4))
def test_every_multiple_of_four_is_balanced(n: int) -> None:
    assert Counter(domains(n)) == dict.fromkeys(DOMAINS, n // 4)


def test_every_id_names_its_domain_and_number() -> None:
    assert [item.id for item in corpus()] == [f"{d}-{i:02d}" for i in range(16) for d in DOMAINS]
    assert [item.domain for item in corpus()] == list(DOMAINS) * 16


def test_ids_are_the_beginning_of_each_text_in_its_order() -> None:
    found = sequences(Characters(), 64, 1000)
    assert ["".join(map(chr, ids)) for ids in found] == [item.text[:1000] for item in corpus()]


def test_the_longest_length_is_that_of_the_shortest_of_the_asked_texts() -> None:
    shortest = min(len(item.text) for item in corpus()[:8])
    assert len(sequences(Characters(), 8, shortest)[0]) == shortest
    with pytest.raises(errors.InvalidValue, match=rf"length={shortest + 1} .*allowed: 1\.\.{shortest} "):
        sequences(Characters(), 8, shortest + 1)
