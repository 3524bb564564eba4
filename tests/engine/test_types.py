"""Requests and configs refuse what they cannot mean, naming the field, the value and what is allowed."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from engine import EngineConfig, Request, SamplingParams, errors


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("max_tokens", 0),
        ("max_tokens", True),
        ("max_tokens", 2.5),
        ("temperature", -0.1),
        ("temperature", float("nan")),
        ("temperature", float("inf")),
        ("temperature", "1"),
        ("temperature", 1e-40),
        ("seed", -1),
        ("seed", 2**64),
        ("top_p", 1.5),
        ("top_k", -1),
        ("min_p", -0.5),
        ("min_tokens_to_keep", 0),
        ("xtc_probability", 2),
        ("xtc_threshold", 0.6),
        ("repetition_penalty", -1),
        ("repetition_context_size", 0),
        ("presence_penalty", float("nan")),
        ("stop", ("a", "")),
        ("stop", (5,)),
        ("top_logprobs", -1),
        ("logit_bias", {-1: 1.0}),
        ("logit_bias", {1: float("inf")}),
        ("logit_bias", [1]),
        ("stop", 5),
        ("ignore_eos", "no"),
    ],
)
def test_a_bad_sampling_value_names_its_field(field: str, value: object) -> None:
    with pytest.raises(errors.InvalidValue) as caught:
        SamplingParams(**{field: value})
    assert field in str(caught.value)
    assert "allowed" in str(caught.value)


def test_one_stop_string_is_a_tuple_of_one() -> None:
    assert SamplingParams(stop="ab").stop == ("ab",)
    assert SamplingParams(stop=["a", "b"]).stop == ("a", "b")


def test_unknown_fields_list_the_known() -> None:
    with pytest.raises(errors.UnknownField, match="temperature"):
        SamplingParams.from_dict({"temprature": 1.0})
    with pytest.raises(errors.UnknownField, match="prefill_chunk"):
        EngineConfig.from_dict({"model": "m", "chunk": 5})


@pytest.mark.parametrize(
    ("field", "value"), [("dtype", "fp8"), ("drive", "auto"), ("prefill_chunk", 0), ("recurrence", "slow")]
)
def test_a_bad_engine_value_names_its_field(field: str, value: object) -> None:
    with pytest.raises(errors.InvalidValue, match=field):
        EngineConfig.from_dict({"model": "m", field: value})


def test_configs_and_results_are_frozen() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        EngineConfig(model="m").kv = "kv8"  # type: ignore[misc]
    with pytest.raises(dataclasses.FrozenInstanceError):
        SamplingParams().max_tokens = 5  # type: ignore[misc]


def test_resolve_returns_a_new_config_without_auto() -> None:
    config = EngineConfig(model="m")
    resolved = config.resolve(dtype="bfloat16")
    assert (config.dtype, resolved.dtype) == ("auto", "bfloat16")
    assert EngineConfig(model="m", dtype="float32").resolve(dtype="bfloat16").dtype == "float32"


def test_tools_need_messages() -> None:
    with pytest.raises(errors.InvalidValue, match="messages"):
        Request(prompt="hello", tools=({"type": "function"},))
    with pytest.raises(errors.InvalidValue, match="messages"):
        Request(prompt=[1, 2], template_kwargs={"enable_thinking": False})


def test_an_unknown_tap_lists_the_known() -> None:
    with pytest.raises(errors.InvalidValue, match="logprobs"):
        Request(prompt=[1], taps=("attention",))


@pytest.mark.parametrize(
    ("field", "value"),
    [
        *(("prompt", value) for value in (5, None, {1: 2}, {2, 3}, b"ab", np.array(3))),
        ("sampling", 5),
        ("taps", 5),
        ("taps", "logits"),
        ("forced_tokens", 5),
        ("forced_tokens", np.array([])),
    ],
)
def test_a_value_of_another_type_names_its_field(field: str, value: object) -> None:
    fields: dict[str, object] = {"prompt": (1, 2), field: value}
    with pytest.raises(errors.InvalidValue, match=field):
        Request(**fields)  # type: ignore[arg-type]


def test_token_ids_may_come_as_an_array() -> None:
    request = Request(prompt=np.array([4, 5]), forced_tokens=np.array([6]))  # type: ignore[arg-type]
    assert (request.prompt, request.forced_tokens) == ((4, 5), (6,))
