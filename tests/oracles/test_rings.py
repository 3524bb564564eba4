"""Rings that keep their first tokens, native and packed, against mlx-lm's and mlx-optiq's classes themselves.

mlx-lm makes such rings for `max_kv_size`, in models without caches of their own; no model here has that setting.
"""

from __future__ import annotations

import itertools
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import mlx.core as mx
import pytest

from engine.kv.masks import Masks
from engine.kv.request import LayerRequest
from engine.kv.rotating import RotatingKV
from engine.kv.scheme import NATIVE, scheme_of
from engine.kv.spec import CacheSpec
from oracles.client import child_environment
from oracles.contract import StackConfig

SIZE, SCALE = 16, 0.125
# Prefill at once, in chunks, and token by token; several tokens after a wrap; longer than the ring.
CALLS = {
    "at once": (40, *(1,) * 20, 5, 1),
    "chunks": (6, 6, 6, 6, 1, 1, 20, 1, 3),
    "tokens": ((1,) * 40 + (4, 1)),
    "long": (5, 50, 1, 2, *(1,) * 18, 30, 1),
}
WIDTHS = ((0, 64), (2, 64), (3, 32), (4, 32), (4, 64), (5, 64), (6, 32), (8, 64))
STARTS = (0, 21)
CASES = [
    (calls, keep, bits, group, start)
    for calls, keep, (bits, group), start in itertools.product(CALLS, (0, 4), WIDTHS, STARTS)
    if bits or not start
]
SCRIPT = """
import sys
from pathlib import Path
from engine import use_blas
use_blas("bundled")
from oracles.optiq_adapter import attend_ring
for source in Path(sys.argv[1]).glob("*.safetensors"):
    attend_ring(source, Path(sys.argv[2]) / source.name)
"""


def drawn(calls: str) -> dict[str, mx.array]:
    count = sum(CALLS[calls])
    heads = {"keys": 2, "values": 2, "queries": 4}
    return {
        name: mx.random.normal((1, heads[name], count, 64), key=mx.random.key(i))
        for i, name in enumerate(sorted(heads))
    }


@pytest.fixture(scope="module")
def oracle(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder with each case's answer."""
    sources, targets = tmp_path_factory.mktemp("asked"), tmp_path_factory.mktemp("answered")
    for i, (calls, keep, bits, group, start) in enumerate(CASES):
        ring = {"ring": mx.array([SIZE, keep, bits, group, start]), "calls": mx.array(CALLS[calls])}
        mx.save_safetensors(str(sources / f"{i}.safetensors"), drawn(calls) | ring)
    environment = child_environment(StackConfig(stack="optiq", model=""))
    subprocess.run([sys.executable, "-P", "-c", SCRIPT, sources, targets], env=environment, check=True, timeout=120)
    return targets


@pytest.mark.parametrize("case", range(len(CASES)), ids=["-".join(map(str, case)) for case in CASES])
def test_a_ring_attends_what_the_oracles_does(case: int, oracle: Path) -> None:
    calls, keep, bits, group, start = CASES[case]
    given = drawn(calls)
    cache = RotatingKV(CacheSpec(kind="rotating", size=SIZE, window=SIZE, keep=keep), NATIVE)
    out = []
    for begin, end in itertools.pairwise(itertools.accumulate(CALLS[calls], initial=0)):
        view = cache.append(given["keys"][:, :, begin:end], given["values"][:, :, begin:end])
        out.append(view.attend(given["queries"][:, :, begin:end], SCALE, Masks()))
        if bits and cache.scheme is NATIVE and cache.offset >= start:
            cache = cache.converted(scheme_of(LayerRequest(bits=bits, value_bits=bits, group_size=group)))
    expected = mx.load(str(oracle / f"{case}.safetensors"))
    assert isinstance(expected, dict)
    assert mx.array_equal(mx.concatenate(out, axis=2), expected["out"])
