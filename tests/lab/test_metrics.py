"""The metric table: closed, consistent, and the only place of a format."""

from __future__ import annotations

import pytest

from engine import errors
from lab.metrics import METRICS, metric, show, show_interval


def test_every_row_is_keyed_by_its_name_and_its_suffix_agrees_with_its_unit() -> None:
    suffixes = {"_tok_s": "tok/s", "_ms": "ms", "_bytes": "bytes", "_nats": "nats", "_gb_s": "GB/s"}
    for name, row in METRICS.items():
        assert row.name == name
        for suffix, unit in suffixes.items():
            if name.endswith(suffix):
                assert row.unit == unit, name


def test_unknown_metric_lists_the_known() -> None:
    with pytest.raises(errors.UnknownField, match="decode_tok_s"):
        metric("tokens_per_second")


def test_formats() -> None:
    assert show("decode_tok_s", 12.3456) == "12.35"
    assert show("peak_bytes", 2**20 * 540) == "540.0 MiB"
    assert show("kl_nats", 0.1387) == "0.139"
    assert show("kl_nats", 0.00042) == "4.2e-04"
    assert show("kl_nats", 0.0) == "0"
    assert show("kl_nats", None) == "–"


def test_an_interval_says_why_it_is_missing() -> None:
    assert show_interval("kv_bytes", 1.0, 1.0) == "counted"
    assert show_interval("decode_tok_s", None, None) == "no interval (n < 2)"
    assert show_interval("decode_tok_s", 1.0, 2.0) == "1.00 to 2.00"
    assert show_interval("decode_tok_s", 1.0, 11.0) == "interval wider than ×10"
