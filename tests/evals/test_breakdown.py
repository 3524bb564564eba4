"""Where KL lies: spans of positions and labels, each against a plain loop."""

from __future__ import annotations

import numpy as np
import pytest

from evals.bootstrap import mean_by_sequence
from evals.breakdown import MOST_SPANS, by_label, by_span

RNG = np.random.default_rng(4)


def values(n: int, sequences: int = 5) -> list[np.ndarray]:
    return [RNG.exponential(size=n) for _ in range(sequences)]


@pytest.mark.parametrize(("n", "count", "width"), [(4, 4, 1), (16, 16, 1), (17, 9, 2), (32, 16, 2), (127, 16, 8)])
def test_spans_cover_every_position_once(n: int, count: int, width: int) -> None:
    parts, positions = values(n), range(100, 100 + n)
    spans = by_span(parts, positions)
    assert len(spans) == count <= MOST_SPANS
    assert [at for span in spans for at in range(span.first, span.last + 1)] == list(positions)
    assert {span.last - span.first + 1 for span in spans[:-1]} <= {width}
    for span in spans:
        inside = [part[span.first - 100 : span.last - 99] for part in parts]
        assert span.kl == mean_by_sequence(inside)
        assert span.kl.value == pytest.approx(np.mean(inside), rel=1e-12)
        assert span.kl.low is not None
        assert span.kl.low < span.kl.value


def test_labels_keep_their_order_and_a_lone_text_has_no_interval() -> None:
    parts = values(6)
    found = by_label(parts, ["b", "a", "b", "c", "a"])
    assert list(found) == ["b", "a", "c"]
    assert found["b"] == mean_by_sequence([parts[0], parts[2]])
    assert (found["c"].value, found["c"].low) == (pytest.approx(parts[3].mean(), rel=1e-12), None)
