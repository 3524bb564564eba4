"""The one-pass greedy token: with a kernel it has the bits of log-softmax and argmax; without one it is refused."""

from __future__ import annotations

from pathlib import Path

import mlx.core as mx
import pytest

from engine import Request, SamplingParams, errors, load, machine
from engine.sample.argmax import normalised_argmax, unfit_for_normalised
from engine.sample.logprobs import logprobs_of

ROWS, SIZE, GROUP = 100_000, 257, 5_000
DTYPES = (mx.float32, mx.bfloat16, mx.float16)


def tied(seed: int, dtype: mx.Dtype) -> mx.array:
    """Logits [GROUP, SIZE] of few distinct values near one another: most maxima are ties."""
    draws = mx.random.normal((GROUP, SIZE), key=mx.random.key(seed))
    return ((draws * 8).round() / 8 + 20).astype(dtype)


def unequal_rows(dtype: mx.Dtype) -> tuple[int, int]:
    """Of `ROWS` rows: how many differ from log-softmax and argmax, and how many have a tie at the top."""
    unequal = ties = 0
    for seed in range(ROWS // GROUP):
        logits = tied(seed, dtype)
        logprobs = logprobs_of(logits)
        best = logprobs.max(axis=-1)
        tokens, chosen = normalised_argmax(logits)
        unequal += int(((tokens != mx.argmax(logprobs, axis=-1)) | (chosen != best)).sum().item())
        ties += int(((logprobs == best[:, None]).sum(axis=-1) > 1).sum().item())
    return unequal, ties


def test_the_kernel_has_the_bits_or_the_engine_refuses_it_at_load(llama_folder: Path) -> None:
    if unfit_for_normalised(machine().device):
        with pytest.raises(errors.InvalidValue, match=r"argmax='normalised'.*full"):
            load(llama_folder, argmax="normalised")
        return
    for dtype in DTYPES:
        unequal, ties = unequal_rows(dtype)
        assert (unequal, ties > ROWS // 10) == (0, True)
    tokens = []
    for argmax in ("full", "normalised"):
        with load(llama_folder, argmax=argmax) as engine:
            done = engine.generate(Request(prompt=(2, 3, 5), sampling=SamplingParams(max_tokens=24, ignore_eos=True)))
            assert done.plan.argmax == argmax
            tokens.append(done.tokens)
    assert tokens[0] == tokens[1]


def test_devices_without_a_kernel_say_why() -> None:
    assert unfit_for_normalised("cuda") == ""
    assert "cpu" in unfit_for_normalised("cpu")
    assert "no kernel" in unfit_for_normalised("metal")


def test_an_unknown_value_is_refused(llama_folder: Path) -> None:
    with pytest.raises(errors.InvalidValue, match="argmax='plain'"):
        load(llama_folder, argmax="plain")
