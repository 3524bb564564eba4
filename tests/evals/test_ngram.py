"""The byte n-gram model against numbers computed by hand."""

from __future__ import annotations

import math

import pytest

from engine import errors
from evals.ngram import ByteNgram


def test_order_one_by_hand() -> None:
    """Of "abab": a twice, b twice, two kinds; behind a always b (twice); behind b once a.

    p(a) = (2 + 2/256) / (4 + 2). p(b | a) = (2 + p(b)) / (2 + 1), p(a | b) = (1 + p(a)) / (1 + 1), p(a) = p(b).
    """
    p = (2 + 2 / 256) / 6
    wanted = -math.log2(p) - math.log2((2 + p) / 3) - math.log2((1 + p) / 2)
    assert ByteNgram([b"abab"], order=1).bits(b"aba") == pytest.approx(wanted, rel=1e-12)


def test_unseen_history_and_unseen_byte() -> None:
    """Behind c nothing was ever seen: b costs there what it does without history. A new byte: t / (n + t) / 256."""
    model = ByteNgram([b"abab"], order=1)
    fresh = 2 / 6 / 256
    p = (2 + 2 / 256) / 6
    assert model.bits(b"cb") == pytest.approx(-math.log2(fresh) - math.log2(p), rel=1e-12)


def test_probabilities_sum_to_one() -> None:
    """Over all bytes behind a history of three: a wrong count of kinds would show."""
    model = ByteNgram([b"the cat sat on the mat, the rat that sat"])
    rest = sum(2 ** -(model.bits(b"the " + bytes([c])) - model.bits(b"the ")) for c in range(256))
    assert rest == pytest.approx(1.0, rel=1e-9)


def test_texts_do_not_run_into_each_other() -> None:
    """ "b" behind "a" was seen inside of no text."""
    apart, joined = ByteNgram([b"a", b"b"], order=1), ByteNgram([b"ab"], order=1)
    assert apart.bits(b"ab") > joined.bits(b"ab")


def test_refusals() -> None:
    with pytest.raises(errors.InvalidValue, match="order"):
        ByteNgram([b"a"], order=7)
    with pytest.raises(errors.InvalidValue, match="texts"):
        ByteNgram([b"a"]).bits_per_byte([b""])
