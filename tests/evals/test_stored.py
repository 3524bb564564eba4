"""A reference kept in a file: KL against it, what it leaves out, and what it refuses."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from eval_fakes import SEQUENCES, VOCAB, FakeArm, config

from engine import errors
from evals.fidelity import ids_digest, run_fidelity
from evals.kl import kl_divergence, log_softmax
from evals.protocol import Plan
from evals.stored import expand, keep, read_reference, store_reference

PLAN = Plan("step", 16, 4)


def quiet(_label: str, _done: int, _total: int | None) -> None:
    """No bars."""


def drawn(n: int = 50, v: int = 200) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(3)
    reference = rng.normal(0, 3, (n, v))
    return reference, reference + rng.normal(0, 0.3, (n, v)), rng.integers(0, v, n)


def lumped(reference: np.ndarray, candidate: np.ndarray, ids: np.ndarray) -> np.ndarray:
    """KL with all ids but `ids` as one, by its definition."""
    found = []
    for p, q, kept in zip(np.exp(log_softmax(reference)), np.exp(log_softmax(candidate)), ids, strict=True):
        ps, qs = [*p[kept], 1 - p[kept].sum()], [*q[kept], 1 - q[kept].sum()]
        found.append(sum(a * np.log(a / b) for a, b in zip(ps, qs, strict=True)))
    return np.array(found)


def test_kl_of_what_is_kept_is_kl_with_the_others_as_one() -> None:
    reference, candidate, goal = drawn()
    ids, logprobs, tails = keep(reference, goal, 20)
    found = kl_divergence(expand(ids, logprobs, tails, candidate), candidate)
    # The definition adds the same float64 terms in another order, so the last bits differ.
    assert np.abs(found - lumped(reference, candidate, ids)).max() < 1e-10
    exact = kl_divergence(reference, candidate)
    assert (found <= exact + 1e-12).all()
    assert 0 < (exact - found).mean() < 0.2 * exact.mean()
    assert (ids == goal[:, None]).any(axis=1).all()


def test_a_model_against_itself_is_nothing() -> None:
    reference, _, goal = drawn()
    assert np.abs(kl_divergence(expand(*keep(reference, goal, 20), reference), reference)).max() < 1e-12


def test_a_run_against_the_file_is_the_run_against_the_model(tmp_path: Path) -> None:
    path = tmp_path / "reference.safetensors"
    ids = ids_digest(SEQUENCES)
    store_reference(config(), SEQUENCES, path, plan=PLAN, ids_sha256=ids, progress=quiet, start=FakeArm)
    stored = read_reference(path)
    assert stored.ids.shape == (len(SEQUENCES), 4, VOCAB - 1)
    arms = [config("kv8"), config("kv2")]
    live = run_fidelity(config(), arms, SEQUENCES, tail=4, start=FakeArm, floor_sequences=0)
    kept = run_fidelity(stored, arms, SEQUENCES, tail=4, start=FakeArm)
    for one, other in zip(live, kept, strict=True):
        assert other.report.kl.value == pytest.approx(one.report.kl.value, abs=1e-6)
        assert other.report.top1 == one.report.top1
        assert other.report.reference_perplexity.value == pytest.approx(one.report.reference_perplexity.value, rel=1e-5)
        assert (other.reference, other.reference_kv_bytes) == (one.reference, one.reference_kv_bytes)
        assert one.left_out is None
        assert other.left_out is not None
        assert abs(other.left_out) < 1e-6  # all ids but one are kept here


def test_what_it_leaves_out_is_measured(tmp_path: Path) -> None:
    path = tmp_path / "reference.safetensors"
    store_reference(
        config(), SEQUENCES, path, plan=PLAN, ids_sha256=ids_digest(SEQUENCES), progress=quiet, start=FakeArm
    )
    stored = read_reference(path)
    few = [keep(stored.first, np.zeros(4, np.int64), 5) for _ in SEQUENCES]
    ids, logprobs, tails = (np.stack(column) for column in zip(*few, strict=True))
    _, candidate, _ = drawn(4, VOCAB)
    short = replace(stored, ids=ids.astype(np.int64), logprobs=logprobs, tails=tails).left_out(candidate)
    assert short > 1e-3 > abs(stored.left_out(candidate))


def test_other_tokens_protocols_and_files_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "reference.safetensors"
    store_reference(
        config(), SEQUENCES, path, plan=PLAN, ids_sha256=ids_digest(SEQUENCES), progress=quiet, start=FakeArm
    )
    stored = read_reference(path)
    with pytest.raises(errors.InvalidValue, match="plan"):
        run_fidelity(stored, [config("kv8")], SEQUENCES, tail=5, start=FakeArm)
    with pytest.raises(errors.InvalidValue, match="ids_sha256"):
        run_fidelity(stored, [config("kv8")], SEQUENCES[:3], tail=4, start=FakeArm)
    for options in ({"layers": True}, {"reference_warm": 3}):
        with pytest.raises(errors.InvalidValue, match=next(iter(options))):
            run_fidelity(stored, [config("kv8")], SEQUENCES, tail=4, start=FakeArm, **options)  # type: ignore[arg-type]
    whole = path.read_bytes()
    for bad in (whole[:100], b"", whole.replace(b'"format', b'"farmot')):
        path.write_bytes(bad)
        with pytest.raises(errors.CorruptFile):
            read_reference(path)
    with pytest.raises(errors.CorruptFile):
        read_reference(tmp_path / "none")
