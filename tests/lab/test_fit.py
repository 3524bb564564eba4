"""`frontier fit`: the laws that it carries on, what it prints, and what it refuses. Peaks are faked here; test_fit_live
has real ones."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any, cast

import pytest

from engine import Engine, errors
from engine.types import Rehearsal
from lab import cli
from lab.fit import MOST_TOKENS, STEP, Forecast, split_context
from lab.sizes import parse_size

WEIGHTS, PER_TOKEN, RING = 10_000_000, 100, 64
# The first of all tokens also has the native buffers that are converted behind it.
UNCONVERTED = 5_000_000


class LawfulEngine:
    """An engine that obeys the laws: c * (a + b * S) for a chunk, a + b * S for a token. It notes what is run on it."""

    def __init__(self, *, chunk: int, kv: str = "native", layout: str = "full") -> None:
        self.config = SimpleNamespace(prefill_chunk=chunk, kv=kv)
        self.weights_bytes = WEIGHTS
        self.layout = layout
        self.runs: list[tuple[int, int]] = []

    def project(self, prompt_tokens: int, max_tokens: int) -> Any:
        kv_bytes = PER_TOKEN * (prompt_tokens - 1 + max_tokens)
        return SimpleNamespace(kv_bytes=kv_bytes, per_layer=(SimpleNamespace(layout=self.layout),))

    def transient(self, end: int, tokens: int) -> int:
        seen = end if self.layout == "full" else min(end, RING + tokens)
        return 3000 + 2 * end + (0 if end else UNCONVERTED) if not tokens else tokens * (700 + seen)

    def rehearse(self, held_tokens: int, prompt_tokens: int, max_tokens: int) -> Rehearsal:
        tokens = prompt_tokens - 1
        self.runs.append((held_tokens + tokens, tokens))
        kv_bytes = PER_TOKEN * (held_tokens + tokens + max_tokens)
        return Rehearsal(WEIGHTS + kv_bytes + self.transient(held_tokens + tokens, tokens), kv_bytes)


@pytest.mark.parametrize("layout", ["full", f"rotating:{RING}"])
@pytest.mark.parametrize(("context", "chunk"), [(9000, 256), (2000, 512), (700, 512), (400, 512), (66, 512), (2, 8)])
def test_what_follows_the_laws_is_predicted_exactly(context: int, chunk: int, layout: str) -> None:
    engine = LawfulEngine(chunk=chunk, layout=layout)
    fit = Forecast(cast(Engine, engine), context).at(context)
    end = split_context(context)[0] - 1
    for moment in fit.moments:
        if moment.name == "decoding":
            if end < 4:
                continue
            seen = context if end >= 4 * STEP else end // 2 // STEP * STEP or end // 2  # level where steps are few
            assert moment.transient_bytes == pytest.approx(3000 + 2 * seen, abs=1)
            continue
        tokens = min(chunk, end) if moment.name != "rest of the prompt" else end % chunk
        if moment.name == "first chunk" and tokens < 4:
            continue
        if layout != "full" and (moment.name != "last whole chunk" or context < 4 * chunk):
            continue  # a ring that is filled meanwhile, or holds less, bends the line
        assert moment.transient_bytes == pytest.approx(engine.transient(moment.tokens, tokens), rel=1e-6)
    assert fit.peak.peak_bytes == max(moment.peak_bytes for moment in fit.moments)


@pytest.mark.parametrize(("context", "chunk"), [(9000, 256), (2000, 512), (700, 512), (400, 512), (66, 512)])
def test_no_piece_is_the_whole_request(context: int, chunk: int) -> None:
    engine = LawfulEngine(chunk=chunk)
    Forecast(cast(Engine, engine), context)
    end = split_context(context)[0] - 1
    assert engine.runs
    assert all(at <= end / 2 + chunk or tokens <= chunk / 2 for at, tokens in engine.runs)
    assert not any(at == tokens == end for at, tokens in engine.runs)


def test_the_largest_context_is_the_last_that_fits() -> None:
    forecast = Forecast(cast(Engine, LawfulEngine(chunk=256)), 5000)
    budget = forecast.at(5000).peak.peak_bytes
    largest = forecast.largest(budget)
    assert largest is not None
    assert forecast.at(largest).peak.peak_bytes <= budget < forecast.at(largest + 1).peak.peak_bytes
    assert forecast.largest(WEIGHTS) is None
    assert forecast.largest(1 << 60) == MOST_TOKENS


def test_a_scheme_with_a_start_has_a_moment_of_its_own() -> None:
    names = [
        [m.name for m in Forecast(cast(Engine, LawfulEngine(chunk=256, kv=kv)), 5000).at(5000).moments]
        for kv in ("kv8", "kv8:start=900", "kv8:start=9000")
    ]
    assert ["conversion" in each for each in names] == [False, True, False]


@pytest.mark.parametrize(
    ("text", "count"), [("1", 1), ("8GiB", 8 << 30), ("1.5 GB", 1_500_000_000), ("2MB", 2_000_000), ("3KiB", 3072)]
)
def test_sizes(text: str, count: int) -> None:
    assert parse_size("--memory", text) == count


@pytest.mark.parametrize("text", ["", "0", "-1", "8G", "GB", "8 gigs", "0.2B", "1e9", "nan"])
def test_what_is_no_size_is_refused(text: str) -> None:
    with pytest.raises(errors.InvalidValue, match="--memory"):
        parse_size("--memory", text)


@pytest.mark.parametrize(
    ("flags", "word"),
    [
        (["--ctx", "0"], "--ctx=0"),
        (["--ctx", "100", "--kv", "kv9"], "kv='kv9'"),
        (["--ctx", "100", "--kv", "native,,"], "kv=''"),
        (["--ctx", "100", "--memory", "much"], "--memory='much'"),
        (["--ctx", "100", "--chunk", "0"], "prefill_chunk=0"),
    ],
)
def test_bad_input_is_an_error_of_one_line(flags: list[str], word: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["fit", "smollm2-135m-instruct", *flags, "--json"]) == 2
    printed = capsys.readouterr()
    assert word in printed.err
    assert word in json.loads(printed.out)["error"]
