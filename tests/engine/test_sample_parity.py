"""Sampling against mlx-lm, to the bit: tokens, processed logits, log-probabilities and keys spent."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import mlx.core as mx
import pytest
import sample_reference as grid

from engine import SamplingParams
from engine.sample.keys import KeyChain
from engine.sample.logprobs import logprobs_of
from engine.sample.processors import build_processors
from engine.sample.samplers import build_sampler

CELLS = [(rows, dtype) for rows in grid.ROWS for dtype in grid.DTYPES]


@pytest.fixture(scope="module")
def reference(tmp_path_factory: pytest.TempPathFactory) -> dict[str, mx.array]:
    out = tmp_path_factory.mktemp("sample") / "mlx_lm.safetensors"
    subprocess.run([sys.executable, str(Path(grid.__file__)), str(out)], check=True, capture_output=True, text=True)
    return mx.load(str(out))


def draw(name: str, rows: str, dtype: str, *, fused: bool) -> tuple[list[int], float]:
    """Our tokens of a cell, and the number that the chain's next key gives."""
    params = SamplingParams(**grid.SAMPLERS[name])
    special = grid.XTC_SPECIAL if params.xtc_probability else ()
    sampler = build_sampler(params, grid.VOCAB, xtc_special_tokens=special, fused=fused)
    keys = KeyChain(grid.SEED)
    tokens = [sampler(logprobs_of(grid.logits(rows, dtype, i)), keys) for i in range(grid.DRAWS)]
    return mx.concatenate(tokens).tolist(), mx.random.uniform(0, 1, key=keys.next()).item()


@pytest.mark.parametrize(("rows", "dtype"), CELLS)
@pytest.mark.parametrize("name", grid.SAMPLERS)
def test_tokens_and_keys(reference: dict[str, mx.array], name: str, rows: str, dtype: str) -> None:
    state = mx.random.state[0].tolist()
    tokens, following = draw(name, rows, dtype, fused=False)
    assert tokens == reference[f"sampler/{name}/{rows}/{dtype}"].tolist()
    assert following == reference[f"sampler/{name}/{rows}/{dtype}/next"].item()
    assert mx.random.state[0].tolist() == state


@pytest.mark.parametrize(("name", "rows", "dtype"), grid.FUSED)
def test_fused_and_plain_draw_the_same(reference: dict[str, mx.array], name: str, rows: str, dtype: str) -> None:
    expected = reference[f"fused/{name}/{rows}/{dtype}"].tolist()
    assert expected == reference[f"sampler/{name}/{rows}/{dtype}"].tolist()
    tokens, following = draw(name, rows, dtype, fused=True)
    assert tokens == expected
    assert following == reference[f"fused/{name}/{rows}/{dtype}/next"].item()


@pytest.mark.parametrize(("rows", "dtype"), CELLS)
@pytest.mark.parametrize("history", grid.HISTORIES)
@pytest.mark.parametrize("name", grid.PROCESSORS)
def test_processed_logits(reference: dict[str, mx.array], name: str, history: str, rows: str, dtype: str) -> None:
    raw = grid.logits(rows, dtype, 0)
    before = mx.array(raw)
    processors = build_processors(SamplingParams(**grid.PROCESSORS[name]), grid.VOCAB)
    ours = processors(mx.array(grid.HISTORIES[history], dtype=mx.int32), raw)
    theirs = reference[f"processor/{name}/{history}/{rows}/{dtype}"]
    assert ours.dtype == theirs.dtype
    assert mx.array_equal(ours, theirs)
    assert mx.array_equal(raw, before)


@pytest.mark.parametrize(("rows", "dtype"), CELLS)
def test_logprobs(reference: dict[str, mx.array], rows: str, dtype: str) -> None:
    ours = logprobs_of(grid.logits(rows, dtype, 0))
    assert ours.dtype == grid.DTYPES[dtype]
    assert mx.array_equal(ours, reference[f"logprobs/{rows}/{dtype}"])


def test_the_grid_is_not_degenerate(reference: dict[str, mx.array]) -> None:
    """A setting that always draws one token, or filters that do nothing, would make every cell pass."""
    plain = reference["sampler/plain/smooth/float32"].tolist()
    assert len(set(plain)) > 20
    for name in ("cool", "hot", "top_p", "min_p", "xtc", "top_k", "all"):
        assert reference[f"sampler/{name}/smooth/float32"].tolist() != plain
    for rows in grid.ROWS:
        unchanged = grid.logits(rows, "float32", 0)
        for name in grid.PROCESSORS:
            changed = not mx.array_equal(reference[f"processor/{name}/long/{rows}/float32"], unchanged)
            assert changed == (name != "repetition_one")
