"""Whether a lever is on is read from the live engine, and an arm whose lever is not on is found out."""

from __future__ import annotations

from typing import Any

import pytest

from engine import SamplingParams, load
from oracles.contract import StackConfig, Trace
from oracles.live import idle_levers
from oracles.tiny import tiny_model

LIVE = {
    "dtype": "float32",
    "prefill_chunk": "2048",
    "recurrence": "fast",
    "fuse": "none",
    "compile": "step (16 steps)",
    "blas": "bundled",
    "mlx_compile": "on",
}


def idle(live: dict[str, str], **config: Any) -> str:
    return idle_levers(Trace({}, {"levers": LIVE | live}), StackConfig(**{"stack": "engine", "model": "m"} | config))


def test_levers_that_are_on_are_not_idle() -> None:
    assert idle({}, levers=(("compile", "step"), ("fuse", "none"))) == ""
    assert idle({"fuse": "quantized (60 modules)"}, levers=(("fuse", "quantized"),)) == ""


@pytest.mark.parametrize(
    ("live", "config", "words"),
    [
        ({}, {"levers": (("fuse", "quantized"),)}, "fuse=quantized was asked and is none"),
        ({"compile": "none"}, {"levers": (("compile", "step"),)}, "compile=step was asked and is none"),
        ({}, {"levers": (("compile", "none"),)}, "compile=none was asked and is step (16 steps)"),
        ({}, {"chunk": 512}, "prefill_chunk=512 was asked and is 2048"),
        ({}, {"blas": "openblas"}, "blas=openblas was asked and is bundled"),
        ({}, {"compile": False}, "mlx_compile=off was asked and is on"),
        ({}, {"dtype": "bfloat16", "chunk": 1}, "dtype=bfloat16 was asked and is float32; prefill_chunk=1 was"),
    ],
)
def test_a_lever_that_is_not_on_is_named(live: dict[str, str], config: dict[str, Any], words: str) -> None:
    assert words in idle(live, **config)


def test_another_stack_says_nothing_of_its_levers() -> None:
    assert idle_levers(Trace({}, {}), StackConfig(stack="mlx-lm", model="m", chunk=512)) == ""


def test_the_engine_says_what_its_levers_did() -> None:
    folder = tiny_model("llama")
    with load(folder, prefill_chunk=4, compile="step") as engine:
        asked = engine.live_levers()
        assert (asked["compile"], asked["prefill_chunk"], asked["fuse"]) == ("none", "4", "none")
        engine.generate([1, 2, 3], SamplingParams(max_tokens=8, ignore_eos=True))
        steps = engine.live_levers()["compile"]
    assert steps.startswith("step (")
    assert int(steps.split()[1].strip("(")) >= 4
    with load(tiny_model("qwen3", quant="q4g32"), fuse="quantized") as engine:
        assert engine.live_levers()["fuse"] == "quantized (6 modules)"
