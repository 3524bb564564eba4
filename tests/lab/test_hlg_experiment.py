"""The experiment hlg: self-BLEU, the gate of samplers, and the decisions that planted continuations come to."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from lab_bench import Lab, make_lab
from lab_fakes import FakeWorker, Machine

from engine import errors
from lab.diversity import bleu, self_bleu
from lab.sampler_gate import Spread, judge_spreads, spread_of
from oracles.contract import DrawProbe, StackConfig, Trace


def test_self_bleu_of_known_rows() -> None:
    """By hand: `1 2 3 4 5` against `1 2 3 9 9` has 3 of 5, (2+1)/(4+1), (1+1)/(3+1), (0+1)/(2+1)."""
    by_hand = (3 / 5 * 3 / 5 * 2 / 4 * 1 / 3) ** 0.25
    assert bleu([1, 2, 3, 4, 5], [[1, 2, 3, 9, 9]]) == pytest.approx(by_hand)
    assert self_bleu([[1, 2, 3, 4, 5], [1, 2, 3, 9, 9]]) == pytest.approx(by_hand)
    assert self_bleu([[1, 2, 3, 4]] * 3) == pytest.approx(1.0)
    apart = self_bleu([[1, 2, 3, 4], [5, 6, 7, 8]])
    assert 0 < apart < self_bleu([[1, 2, 3, 4], [1, 6, 7, 8]])
    assert bleu([1, 1, 1, 1], [[1, 2, 3, 4]]) < bleu([1, 1, 1, 1], [[1, 1, 3, 4]])  # clipped counts


@pytest.mark.parametrize("rows", [[[1, 2, 3, 4]], [[1, 2, 3, 4], [1, 2, 3]], [[1, 2], [1, 2]]])
def test_self_bleu_refuses(rows: list[list[int]]) -> None:
    with pytest.raises(errors.InvalidValue, match="continuations"):
        self_bleu(rows)


def test_spread_is_entropy_and_cross_entropy() -> None:
    import mlx.core as mx

    logits = mx.array([[1.0, 0.0, -1.0], [2.0, 2.0, -4.0]])
    entropy, surprise = spread_of(logits, {"temperature": 2.0, "sampler": "categorical"})
    x = np.array(logits, np.float64)
    p = np.exp(x) / np.exp(x).sum(1, keepdims=True)
    q = np.exp(x / 2) / np.exp(x / 2).sum(1, keepdims=True)
    assert entropy == pytest.approx(-(q * np.log(q)).sum(1).mean(), rel=1e-6)
    assert surprise == pytest.approx(-(q * np.log(p)).sum(1).mean(), rel=1e-6)


@pytest.mark.parametrize(
    ("entropy", "surprise", "status"),
    [
        (1.0, 0.02, "PASS"),
        (1.005, 0.02, "PASS"),
        (1.02, 0.0, "UNDECIDED"),
        (0.98, 0.0, "UNDECIDED"),
        (1.0, 0.2, "FAIL"),
    ],
)
def test_the_gate_matches_entropies_and_bounds_the_surprise(entropy: float, surprise: float, status: str) -> None:
    """An unmatched temperature may not be judged, whatever else is good: at a higher one everything is more diverse."""
    base = Spread((2.0,) * 8, (2.0,) * 8)
    candidate = Spread((2.0 * entropy,) * 8, (2.0 + surprise,) * 8)
    assert judge_spreads(base, candidate, 0.01, 0.1)[0] == status


class Drawing(Machine):
    """Continuations that share about this part of their tokens, the first ones; of the candidate `alike_hlg`."""

    alike, alike_hlg = 0.5, 0.5

    def start(self, config: StackConfig) -> FakeWorker:
        return DrawingWorker(self, config)


class DrawingWorker(FakeWorker):
    def probe(self, probe: DrawProbe) -> Trace:  # type: ignore[override]
        from oracles.contract import TimeProbe

        world, sampler = self.machine, dict(self.config.sampling)["sampler"]
        assert isinstance(world, Drawing)
        trace = super().probe(TimeProbe(token_ids=probe.token_ids, max_tokens=probe.limit))
        rng = np.random.Generator(np.random.PCG64(probe.seed))
        chance = world.alike_hlg if sampler.startswith("hlg") else world.alike
        alike = rng.integers(0, 500, round(chance * probe.limit) + int(rng.integers(-1, 2))).tolist()
        rows = [alike + rng.integers(1000, 9000, probe.limit - len(alike)).tolist() for _ in range(8)]
        doc = dict(trace.doc) | {"drawn": rows, "levers": {"sampler": sampler.split(":")[0]}}
        return Trace({}, doc)


@pytest.fixture
def lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Lab:
    lab = make_lab(tmp_path, monkeypatch)
    lab.world = Drawing(lab.world.key, noise=0.004)
    return lab


WORDS = ("profile.aa_quads=16", "profile.prompt_tokens=8", "profile.steady_window=0", "experiment.targets=[linux]")


def test_the_same_sampler_under_another_name_is_deleted(lab: Lab) -> None:
    """On a shared machine too, since seeds and not the clock move the metric."""
    same = lab.run("hlg", *WORDS)
    assert (same.row, same.verdict) == ("5", "delete: inside +-delta")
    primary = same.comparisons[0]
    assert (primary.metric, primary.use, primary.state) == ("self_bleu", "primary", "same")


@pytest.mark.matrix
@pytest.mark.parametrize(
    ("alike", "status", "row", "verdict"),
    [
        (0.3, "PASS", "4", "confirm"),
        (0.7, "PASS", "7", "delete: worse"),
        (0.3, "UNDECIDED", "1b", "undecided: gate"),
        (0.3, "FAIL", "1", "delete: gate (one repair before expiry)"),
    ],
)
def test_planted_samplers_come_to_their_decisions(lab: Lab, alike: float, status: str, row: str, verdict: str) -> None:
    """One that repeats itself less, one that repeats itself more, one at another entropy, one that draws nonsense."""
    assert isinstance(lab.world, Drawing)
    lab.world.alike_hlg = alike
    result = lab.run("hlg", *WORDS, status=status)
    assert (result.row, result.verdict) == (row, verdict)


def test_a_sampler_that_never_drew_is_no_candidate(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    from lab.measure import LeverNotApplied

    plain = DrawingWorker.probe

    def idle(self: DrawingWorker, probe: DrawProbe) -> Trace:
        trace = plain(self, probe)
        return Trace({}, dict(trace.doc) | {"levers": {"sampler": "categorical"}})

    monkeypatch.setattr(DrawingWorker, "probe", idle)
    with pytest.raises(LeverNotApplied, match="candidate: lever not applied: sampler=hlg was asked and is categorical"):
        lab.run("hlg", *WORDS)


def test_each_sample_has_seeds_of_its_own_and_each_quad_one_prompt(lab: Lab) -> None:
    """Seeds that both arms share would make the two orders of a quad copies of each other."""
    asked: list[tuple[int, tuple[int, ...]]] = []
    start = lab.world.start

    def watch(config: StackConfig) -> FakeWorker:
        worker = start(config)
        probe = worker.probe

        def noted(one: DrawProbe) -> Trace:
            asked.append((one.seed, one.token_ids))
            return probe(one)  # type: ignore[arg-type]

        worker.probe = noted  # type: ignore[method-assign, assignment]
        return worker

    lab.world.start = watch  # type: ignore[method-assign]
    lab.run("hlg", *WORDS, "profile.aa_quads=4")
    timed = asked[2:]  # behind the pilot: two discarded, then eight, for each launch
    quads = [timed[i + 2 + 4 * k : i + 6 + 4 * k] for i in range(0, 20, 10) for k in range(2)]
    for quad in quads:
        assert len({seed for seed, _ in quad}) == 4
        assert len({ids for _, ids in quad}) == 1
    assert len({ids for quad in quads for _, ids in quad}) == len(quads)
