"""The child process: what it answers, what it refuses, and that its death is noticed."""

from __future__ import annotations

import json
import os
import signal
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from engine import errors
from oracles.client import Worker, child_environment
from oracles.contract import (
    GenerateProbe,
    OracleCrashed,
    OracleRefused,
    Probe,
    SchemeNotLive,
    StackConfig,
    TimeProbe,
    Trace,
)
from oracles.live import kv_status, planned_schemes, require_scheme
from oracles.parity import compare_traces
from oracles.tiny import tiny_model
from oracles.worker import guarded, parse_probe, probe_request

IDS = tuple(range(2, 22))


def test_one_worker_answers_all_three_probes_and_names_its_live_caches() -> None:
    config = StackConfig(stack="mlx-lm", model=str(tiny_model("llama")), kv="kv8", chunk=7)
    with Worker(config) as worker:
        forced = worker.probe(Probe(token_ids=IDS, head=1, tail=4, want=("logits", "layers")))
        free = worker.probe(GenerateProbe(token_ids=IDS, sampling={"max_tokens": 5, "ignore_eos": True}))
        timed = worker.probe(TimeProbe(token_ids=IDS, max_tokens=6))
    assert forced.tensors["logits"].shape == (20, 101)
    assert {name for name in forced.tensors if name != "logits"} == {f"layer.{i}" for i in range(-1, 3)}
    assert forced.doc["kv_live"] == ["native"] + ["affine8:g64"] * 19
    assert [cache["scheme"] for cache in forced.doc["caches"]] == ["affine8:g64"] * 3
    assert free.tensors["logprobs"].shape == (5, 101)
    assert len(free.doc["tokens"]) == 5
    assert timed.doc["decode_tokens"] == 5
    assert 0 < timed.doc["ttft_s"] < timed.doc["ttft_s"] + timed.doc["decode_s"]
    assert timed.doc["kv_bytes"] == sum(cache["kv_bytes"] for cache in timed.doc["caches"]) > 0


def test_optiq_mixes_schemes_per_layer_and_mlx_lm_refuses_to(tmp_path: Path) -> None:
    plan = tmp_path / "kv_config.json"
    entries = [{"layer_idx": 0, "bits": 8, "group_size": 64}, {"layer_idx": 2, "bits": 4, "group_size": 32}]
    plan.write_text(json.dumps(entries), encoding="utf-8")
    model, kv = str(tiny_model("llama")), f"mixed:{plan}"
    with Worker(StackConfig(stack="optiq", model=model, kv=kv)) as worker:
        trace = worker.probe(Probe(token_ids=IDS, tail=2))
    assert [cache["scheme"] for cache in trace.doc["caches"]] == ["affine8:g64", "native", "affine4:g32"]
    assert trace.doc["kv_live"] == ["native"] * 18 + ["mixed"] * 2
    require_scheme(trace, kv)
    with pytest.raises(OracleRefused, match="optiq's"), Worker(StackConfig(stack="mlx-lm", model=model, kv=kv)):
        pass


def test_what_mlx_lm_has_not_it_refuses_and_runs_nothing_else_instead() -> None:
    config = StackConfig(stack="mlx-lm", model=str(tiny_model("llama")))
    with Worker(replace(config, model="")) as worker:
        for kv in ("kv8/4", "turbo:k8v3", "kv8:on-write"):
            with pytest.raises(OracleRefused, match="one width"):
                worker.load(replace(config, kv=kv))


def test_a_refused_probe_leaves_the_worker_usable() -> None:
    with Worker(StackConfig(stack="mlx-lm", model=str(tiny_model("gemma2")), kv="kv8")) as worker:
        with pytest.raises(OracleRefused, match="TypeError") as refusal:
            worker.probe(Probe(token_ids=IDS, tail=2))
        assert refusal.value.kind == "TypeError"
        assert worker.probe(Probe(token_ids=(5,))).doc["prompt_tokens"] == 1


def test_an_unseeded_sample_is_refused_as_incomparable() -> None:
    with (
        Worker(StackConfig(stack="mlx-lm", model=str(tiny_model("llama")))) as worker,
        pytest.raises(OracleRefused, match="seed"),
    ):
        worker.probe(GenerateProbe(token_ids=IDS, sampling={"temperature": 1.0}))


def test_sys_exit_and_printing_in_the_child_are_survived(tmp_path: Path) -> None:
    # mlx_lm.models.olmo prints to stdout and calls sys.exit(1) when its optional package is not installed.
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "olmo"}), encoding="utf-8")
    (tmp_path / "model.safetensors").write_bytes((tiny_model("llama") / "model.safetensors").read_bytes())
    with (
        pytest.raises(OracleRefused, match="SystemExit") as refusal,
        Worker(StackConfig(stack="mlx-lm", model=str(tmp_path))),
    ):
        pass
    assert refusal.value.kind == "SystemExit"


def test_death_and_silence_are_crashes_that_show_stderr() -> None:
    config = StackConfig(stack="mlx-lm", model=str(tiny_model("llama")))
    with Worker(config, timeout_s=60.0) as worker:
        os.kill(worker.pid, signal.SIGKILL)
        with pytest.raises(OracleCrashed, match=r"exit code -9"):
            worker.probe(Probe(token_ids=IDS))
    with Worker(config, timeout_s=60.0) as worker:
        worker._timeout_s = 0.2
        os.kill(worker.pid, signal.SIGSTOP)
        with pytest.raises(OracleCrashed, match="did not answer"):
            worker.probe(Probe(token_ids=IDS))


def test_a_closed_worker_says_so() -> None:
    worker = Worker(StackConfig(stack="mlx-lm", model=str(tiny_model("llama"))))
    worker.close()
    worker.close()
    with pytest.raises(OracleCrashed, match="closed"):
        worker.probe(Probe(token_ids=IDS))


def test_guarded_turns_any_exception_into_an_answer() -> None:
    refused = guarded(lambda: sys.exit("no package"))
    assert refused.pop("where").startswith("test_worker.py:")
    assert refused == {"ok": False, "kind": "SystemExit", "text": "no package", "ours": False}
    ours = guarded(lambda: parse_probe({"kind": "guess", "fields": {}}))  # type: ignore[arg-type, return-value]
    assert ours["ours"]
    assert "guess" in ours["text"]


def test_requests_survive_json() -> None:
    for probe in (
        Probe(token_ids=IDS, head=2, tail=3, want=("logits", "layers")),
        Probe(token_ids=IDS, sizes=(7, 7, 6)),
        Probe(token_ids=IDS, tail=3, lens=3, prefix=17),
        Probe(token_ids=IDS, tail=3, prefix=8, beside=(IDS,)),
        GenerateProbe(token_ids=IDS, sampling={"seed": 1, "temperature": 0.5}),
        TimeProbe(token_ids=IDS, max_tokens=4),
    ):
        assert parse_probe(json.loads(json.dumps(probe_request(probe)))) == probe


def test_the_lengths_of_the_forwards() -> None:
    assert Probe(token_ids=IDS, head=2, tail=3).lengths(7) == (2, 7, 7, 1, 1, 1, 1)
    assert Probe(token_ids=IDS).lengths(2048) == (19, 1)
    assert Probe(token_ids=(2,)).lengths(7) == (1,)
    assert Probe(token_ids=IDS, sizes=(7, 1, 12)).lengths(2) == (7, 1, 12)
    for fields in ({"sizes": (7, 7)}, {"sizes": (20, 0)}, {"sizes": (20,), "tail": 2}, {"sizes": (20,), "head": 1}):
        with pytest.raises(errors.InvalidValue, match="sizes"):
            Probe(token_ids=IDS, **fields)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "fields",
    [
        {"prefix": -1}, {"prefix": 18, "tail": 3}, {"prefix": 2, "head": 1}, {"lens": 21}, {"lens": -1},
        {"prefix": 2, "sizes": (20,)}, {"lens": 1, "beside": (IDS,)}, {"head": 1, "served": True},
    ],
)  # fmt: skip
def test_a_prefix_and_a_lens_that_cannot_be_are_refused(fields: dict[str, object]) -> None:
    with pytest.raises(errors.InvalidValue, match=r"prefix|lens|beside"):
        Probe(token_ids=IDS, **fields)  # type: ignore[arg-type]


def test_what_the_engine_alone_does_is_refused_by_name() -> None:
    Probe(token_ids=IDS, head=1, tail=4, want=("logits", "layers")).check_common()
    for fields in ({"prefix": 4}, {"lens": 1}, {"beside": (IDS,)}, {"served": True}):
        with pytest.raises(errors.InvalidValue, match="are the engine's"):
            Probe(token_ids=IDS, **fields).check_common()  # type: ignore[arg-type]


def test_explicit_forwards_are_those_of_the_chunks() -> None:
    with Worker(StackConfig(stack="mlx-lm", model=str(tiny_model("llama")), chunk=7)) as worker:
        chunked, sized = (
            worker.probe(probe) for probe in (Probe(token_ids=IDS), Probe(token_ids=IDS, sizes=(7, 7, 5, 1)))
        )
    assert compare_traces(chunked, sized) is None


def test_the_child_gets_its_blas_and_no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FRONTIER_BLAS", "openblas")
    monkeypatch.setenv("MLX_DISABLE_COMPILE", "1")
    env = child_environment(StackConfig(stack="engine", model="m"))
    assert (env["FRONTIER_BLAS"], env["HF_HUB_OFFLINE"]) == ("bundled", "1")
    assert "MLX_DISABLE_COMPILE" not in env
    assert child_environment(StackConfig(stack="engine", model="m", compile=False))["MLX_DISABLE_COMPILE"] == "1"


def _trace(kv: str, *schemes: str) -> Trace:
    caches = [{"scheme": scheme} for scheme in schemes]
    return Trace({}, {"caches": caches, "kv_status": kv_status(kv, caches)})


def test_a_scheme_that_is_not_live_is_refused() -> None:
    require_scheme(_trace("kv8", "affine8:g64", "affine8:g64"), "kv8")
    require_scheme(_trace("native", "native"), "native")
    for kv, schemes, word in (
        ("kv8:start=5000", ("native", "native"), "start not reached"),
        ("kv8", ("affine8:g64", "native"), "layer 1"),
        ("kv8", ("affine4:g64", "affine4:g64"), "affine4"),
        ("native", ("affine8:g64",), "instead of native"),
        ("kv8", (), "no caches"),
    ):
        with pytest.raises(SchemeNotLive, match=word):
            require_scheme(_trace(kv, *schemes), kv)


def test_kv_config_refuses_what_optiq_would_ignore(tmp_path: Path) -> None:
    path = tmp_path / "kv_config.json"
    path.write_text('[{"layer_idx": 3, "bits": 8}]', encoding="utf-8")
    with pytest.raises(errors.InvalidValue, match="layer_idx=3"):
        planned_schemes(f"mixed:{path}", 3)
    assert planned_schemes(f"mixed:{path}", 4) == ("native", "native", "native", "affine8:g64")
    path.write_text('{"bits": 8}', encoding="utf-8")
    with pytest.raises(errors.CorruptFile, match="list of"):
        planned_schemes(f"mixed:{path}", 3)
    with pytest.raises(errors.CorruptFile, match="not a readable"):
        planned_schemes(f"mixed:{tmp_path / 'absent.json'}", 3)
