"""The error after each layer: against its definition, on stand-ins, and where it must be 0 on trained weights."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from eval_fakes import SEQUENCES, EngineHere, FakeArm, config
from zoo_text import held_out, zoo_arm

from engine import errors
from evals.fidelity import FidelityResult, run_fidelity
from evals.kl import BadLogits, kl_divergence
from evals.layers import LayerScores, Streams, layer_results, score_layers, steps
from oracles.contract import Probe, StackConfig, Trace

RNG = np.random.default_rng(8)
SHAPES = {-1: (5, 6), 0: (5, 6), 1: (5, 12)}


def streams(noise: float = 0.0, lens: bool = True) -> Streams:
    rng = np.random.default_rng(3)
    residuals = {i: rng.normal(size=shape).astype(np.float32) for i, shape in SHAPES.items()}
    logits = {i: rng.normal(size=(5, 9)).astype(np.float32) for i in SHAPES}
    moved = [{i: (a + noise * RNG.normal(size=a.shape)).astype(np.float32) for i, a in each.items()}
             for each in (residuals, logits)]  # fmt: skip
    return Streams(moved[0], moved[1] if lens else {})


def test_the_relative_error_is_that_of_root_mean_squares_position_by_position() -> None:
    reference, candidate = streams(), streams(0.1)
    found = score_layers(reference, candidate)
    assert found.layers == (-1, 0, 1)
    for row, layer in enumerate(found.layers):
        for at in range(5):
            ours, theirs = reference.residuals[layer][at].tolist(), candidate.residuals[layer][at].tolist()
            off = math.fsum((b - a) ** 2 for a, b in zip(ours, theirs, strict=True))
            slow = math.sqrt(off / math.fsum(a * a for a in ours))
            assert found.errors[row, at] == pytest.approx(slow, rel=1e-12)
        assert found.lens_kl is not None
        assert found.lens_kl[row].tolist() == kl_divergence(reference.lens[layer], candidate.lens[layer]).tolist()
    assert score_layers(reference, streams()).errors.max() == 0.0
    assert score_layers(streams(lens=False), streams(lens=False)).lens_kl is None


def test_arms_whose_layers_do_not_pair_are_refused() -> None:
    whole = streams()
    for other in (
        Streams({i: a for i, a in whole.residuals.items() if i != 1}, whole.lens),
        Streams({i: a[:, :3] for i, a in whole.residuals.items()}, whole.lens),
        Streams(whole.residuals, {}),
        Streams({}, {}),
    ):
        with pytest.raises(errors.InvalidValue, match=r"layers=.*the reference's: 3 of \[5, 12\], \[5, 6\]"):
            score_layers(whole, other)


@pytest.mark.parametrize(("value", "arm"), [(np.nan, 0), (np.inf, 1), (0.0, 0)])
def test_streams_without_a_size_are_refused(value: float, arm: int) -> None:
    arms = [streams(), streams()]
    arms[arm].residuals[0][2] = value
    with pytest.raises(BadLogits, match="after layer 0"):
        score_layers(*arms)


def test_results_are_means_over_all_positions_and_by_domain() -> None:
    parts = [LayerScores((-1, 0), RNG.exponential(size=(2, 4)), RNG.exponential(size=(2, 4))) for _ in range(3)]
    embedding, first = layer_results(parts, ["prose", "code", "prose"])
    assert (embedding.name, first.name) == ("embedding", "0")
    assert first.error.value == pytest.approx(np.mean([part.errors[1] for part in parts]), rel=1e-12)
    assert first.lens_kl is not None
    assert first.lens_kl.value == pytest.approx(np.mean([part.lens_kl[1] for part in parts]), rel=1e-12)  # type: ignore[index]
    assert first.error.low is not None
    assert first.error_by_domain["code"].value == pytest.approx(parts[1].errors[1].mean(), rel=1e-12)
    assert list(first.lens_kl_by_domain) == ["prose", "code"]
    assert steps((embedding, first)) == [embedding.error.value, first.error.value - embedding.error.value]


def test_a_run_asks_for_the_streams_and_scores_its_own_positions_of_them() -> None:
    class Late(FakeArm):
        """Wrong where nothing is scored."""

        def probe(self, probe: Probe) -> Trace:
            trace = super().probe(probe)
            spoilt = {name: _spoil(a) if name.startswith("layer.") else a for name, a in trace.tensors.items()}
            return Trace(spoilt, trace.doc)

    def start(asked: StackConfig) -> FakeArm:
        return Late(asked) if asked.kv == "kv4" else FakeArm(asked)

    result = run_fidelity(config(), [config("kv4")], SEQUENCES, tail=4, layers=True, start=start)[0]
    # float32 streams
    assert [layer.error.value for layer in result.layers] == pytest.approx([0, 0.2, 0.4, 0.6], rel=1e-5)
    assert result.layers[0].lens_kl is None
    assert run_fidelity(config(), [config("kv4")], SEQUENCES, tail=4, start=FakeArm)[0].layers == ()


def _spoil(array: object) -> object:
    import mlx.core as mx

    changed = mx.array(array)
    changed[:12] = 1e9
    return changed


IDS = held_out(3, 41)


def live(*names: str, layers: bool = True, dtype: str = "float32", **options: object) -> list[FidelityResult]:
    reference, *kvs = (zoo_arm("draft-0.5m", kv, chunk=8) for kv in names)
    candidates = [replace(each, dtype=dtype) for each in kvs]
    how = {"tail": 12, "layers": layers, "lens": layers, "floor_sequences": 0, "start": EngineHere, **options}
    return run_fidelity(reference, candidates, IDS, **how)  # type: ignore[arg-type]


def test_the_error_enters_where_the_caches_are_quantised(tmp_path: Path) -> None:
    plan = tmp_path / "kv_config.json"
    plan.write_text(json.dumps([{"layer_idx": 1, "bits": 2}]))
    native, kv4, kv2, mixed = live("native", "native", "kv4", "kv2", f"mixed:{plan}")
    for layer in native.layers:
        assert (layer.error.value, layer.lens_kl and layer.lens_kl.value) == (0.0, 0.0)
    for result in (kv4, kv2):
        assert result.layers[0].error.value == 0.0
        assert all(step > 0 for step in steps(result.layers)[1:2])
    assert all(b.error.value > a.error.value > 0 for a, b in zip(kv4.layers[1:], kv2.layers[1:], strict=True))
    found = [layer.error.value for layer in mixed.layers]
    assert found[:2] == [0.0, 0.0]
    assert min(found[2:]) > 0
    for result in (kv4, kv2, mixed):
        end = result.layers[-1].lens_kl
        assert end is not None
        assert end.value == pytest.approx(result.report.kl.value, rel=1e-12)


def test_another_dtype_is_off_from_the_first_layer_on() -> None:
    """The embedding is stored in bfloat16, and so is itself."""
    (half,) = live("native", "native", dtype="bfloat16")
    assert half.layers[0].error.value == 0.0
    assert all(0 < layer.error.value < 0.1 for layer in half.layers[1:])


def test_a_warm_candidate_is_the_cold_one() -> None:
    """In chunks of 8: native and packed on write at any boundary, a converting scheme at the chunk's."""
    for kv, tokens in (("native", 13), ("kv4:on-write", 13), ("kv4", 16)):
        (result,) = live(kv, kv, candidate_warm=tokens, layers=False)
        assert (result.report.kl_max, result.report.reverse_kl.value) == (0.0, 0.0)
        assert result.reference_kv_bytes == result.candidate_kv_bytes
    with pytest.raises(errors.FrontierError, match=r"prefix=13 .*a multiple of 8 tokens, for kv=kv4"):
        live("kv4", "kv4", candidate_warm=13, layers=False)
