"""Where greedy generations part: the estimate against its definition, and runs on stand-ins."""

from __future__ import annotations

import mlx.core as mx
import numpy as np
import pytest
from eval_fakes import SEQUENCES, FakeArm, config

from engine import errors
from evals.fidelity import run_fidelity
from evals.free_running import Parting, free_running, kaplan_meier, part
from lab.kl_tables import parting
from oracles.contract import GenerateProbe, StackConfig, Trace


def test_the_curve_of_a_worked_example() -> None:
    """Five events and one that leaves early: shares by hand."""
    found = kaplan_meier([1, 1, 2, 3, 3, 5], [True, True, True, True, False, False], 5)
    assert found == pytest.approx((1, 4 / 6, 4 / 6 * 3 / 4, 4 / 6 * 3 / 4 * 2 / 3, 4 / 6 * 3 / 4 * 2 / 3), rel=1e-12)


def test_where_all_are_watched_to_the_end_it_is_the_share_itself() -> None:
    steps = [None, 3, 0, 3, None, 7]
    found = free_running([Parting(step, None if step is None else 0.1) for step in steps], 8)
    assert found.still_equal == pytest.approx([5 / 6] * 3 + [3 / 6] * 4 + [2 / 6], rel=1e-12)
    assert (found.median, found.equal, len(found.gaps)) == (3, 2 / 6, 4)
    assert found.equal_interval is not None
    assert found.equal_interval[0] < 2 / 6 < found.equal_interval[1]
    alone = free_running([Parting(None, None)], 8)
    assert (alone.still_equal, alone.median, alone.equal, alone.equal_interval) == ((1.0,) * 8, None, 1.0, None)


def test_the_gap_is_the_references_where_tokens_part() -> None:
    rows = np.array([[-1.0, -0.5, -3.0], [-0.2, -2.0, -0.9]], np.float32)
    reference = Trace({"logprobs": mx.array(rows)}, {"tokens": [1, 0]})
    assert part(reference, Trace({}, {"tokens": [1, 0]})) == Parting(None, None)
    assert part(reference, Trace({}, {"tokens": [1, 2]})) == Parting(1, pytest.approx(0.7, rel=1e-6))
    assert part(reference, Trace({}, {"tokens": [2, 0]})) == Parting(0, pytest.approx(0.5, rel=1e-6))


def test_what_is_printed() -> None:
    some = free_running([Parting(2, 0.3), Parting(None, None), Parting(5, 0.04)], 8)
    assert parting(some) == (
        "  free running, 8 tokens: 33 % (6 to 79 %) of the texts stay equal, half part by token 5; "
        "the reference's lead where they part: middle 0.3, largest 0.3 nats"
    )
    none = "  free running, 8 tokens: 100 % of the texts stay equal, and less than half part"
    assert parting(free_running([Parting(None, None)], 8)) == none


class Greedy(FakeArm):
    """kv4 differs from native at the step that a prompt's first token names."""

    def probe(self, probe: GenerateProbe) -> Trace:  # type: ignore[override]
        if not isinstance(probe, GenerateProbe):
            return super().probe(probe)
        steps = probe.sampling["max_tokens"]
        tokens = [(3 * step + probe.token_ids[0]) % 20 for step in range(steps)]
        if self.config.kv == "kv4":
            tokens[probe.token_ids[0] % steps :] = [39] * (steps - probe.token_ids[0] % steps)
        self.prompts = [*getattr(self, "prompts", []), probe.token_ids]
        name = "native" if self.config.kv == "native" else f"affine{self.config.kv[2:]}:g64"
        doc = {"tokens": tokens, "caches": [{"scheme": name}] * 3, "kv_status": name}
        return Trace({"logprobs": mx.zeros((steps, 40))}, doc)


def test_a_run_lets_every_arm_go_on_from_what_is_prefilled() -> None:
    kv8, kv4 = run_fidelity(config(), [config("kv8"), config("kv4")], SEQUENCES, tail=4, free=9, start=Greedy)
    assert kv8.free is not None
    assert kv4.free is not None
    assert (kv8.free.equal, kv8.free.median, kv8.free.gaps) == (1.0, None, ())
    assert [parting.step for parting in kv4.free.partings] == [ids[0] % 9 for ids in SEQUENCES]
    assert kv4.as_dict()["free"]["steps"] == 9
    arms: list[Greedy] = []

    def start(asked: StackConfig) -> Greedy:
        arms.append(Greedy(asked))
        return arms[-1]

    run_fidelity(config(), [config("kv8")], SEQUENCES, tail=4, free=9, start=start)
    assert [arm.prompts for arm in arms] == [[tuple(ids[:12]) for ids in SEQUENCES]] * 2


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"free": -1}, "free=-1"),
        ({"free": 4, "protocol": "forward"}, "only with the step protocol"),
        ({"free": 4, "protocol": "served", "group": 2}, "only with the step protocol"),
        ({"free": 4, "candidate_warm": 3}, "cold arms"),
    ],
)
def test_what_it_cannot_honour_is_refused(options: dict[str, object], match: str) -> None:
    with pytest.raises(errors.InvalidValue, match=match):
        run_fidelity(config(), [config("kv8")], SEQUENCES, tail=4, start=Greedy, **options)  # type: ignore[arg-type]
