"""`frontier lab new`: nothing is declared without what it is judged by, or written that does not compose."""

from __future__ import annotations

from dataclasses import replace
from datetime import date
from pathlib import Path

import pytest
from life_fakes import source_tree

from engine import errors
from lab.arms import stating
from lab.config import compose
from lab.declare import Declaration, Undeclared, add_new, arm_of
from lab.tree import Tree

DAY = date(2026, 12, 1)
SAID = Declaration(
    name="half",
    hypothesis="Half of the chunk halves the peak: memory falls by 2 % at no loss of speed.",
    primary="peak_bytes",
    delta="0.02",
    expires="2026-12-31",
    quality_class="L",
    owner="somebody",
    candidate=["chunk=512"],
    guardrails=["prefill_tok_s"],
    targets=["linux-x86_64-cpu"],
    workload={"prompt_tokens": 1026, "max_tokens": None, "kl_length": 704},
)


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    return source_tree(tmp_path / "tree", "kv8")


def test_a_declaration_composes_and_says_whose_it_is(tree: Tree) -> None:
    conf = add_new(SAID, tree, DAY)
    e = compose("half", folder=tree.experiments).experiment
    assert conf.experiment == e
    assert (e.kind, e.lever, e.candidate.chunk, e.base.chunk) == ("oracle-owned", ["chunk"], 512, 2048)
    assert (e.delta, e.declared_on, e.expires_on) == (0.02, "2026-12-01", "2026-12-31")
    assert conf.profile.prompt_tokens == 1026
    ours = add_new(replace(SAID, name="packed", candidate=["fuse=quantized"], delta="machine"), tree, DAY).experiment
    assert (ours.kind, ours.delta) == ("ours", None)


@pytest.mark.parametrize("name", ["hypothesis", "primary", "delta", "expires"])
@pytest.mark.parametrize("value", [None, " "])
def test_nothing_is_declared_without_what_it_is_judged_by(tree: Tree, name: str, value: str | None) -> None:
    with pytest.raises(Undeclared, match=f"say --{name}$"):
        add_new(replace(SAID, **{name: value}), tree, DAY)
    assert not tree.experiment("half").exists()


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"name": "kv8"}, "a new one"),
        ({"name": "a/b"}, "letters, digits"),
        ({"name": "null"}, "reads as a word"),
        ({"name": "1e3"}, "reads as a word"),
        ({"primary": "speed"}, "decode_tok_s"),
        ({"delta": "some"}, "a number, or machine"),
        ({"delta": "-1"}, "above 0"),
        ({"expires": "2027-12-31"}, "2026-12-31"),
        ({"candidate": []}, "at least one lever"),
        ({"candidate": ["chunk=2048"]}, "at least one lever"),
        ({"candidate": ["chunk"]}, "NAME=VALUE"),
        ({"candidate": ["chunk=5", "chunk=6"]}, "NAME=VALUE"),
        ({"candidate": ["chunk=many"]}, "a whole number"),
        ({"candidate": ["speed=high"]}, "unknown 'speed'"),
        ({"candidate": ["fuse=dense"]}, "none, quantized"),
        ({"candidate": ["stack=mlx-lm", "fuse=quantized"]}, "mlx-lm has no other"),
        ({"workload": {"prompt_tokens": 96, "kl_length": 704}}, "514 and more"),
        ({"workload": {"prompt_tokens": 1026, "kl_length": 576}}, "profile.kl=448"),  # 128 of them are single steps
        ({"quality_class": "A"}, "L, Q8, QT"),
    ],
)
def test_bad_declarations_write_nothing(tree: Tree, changes: dict[str, object], words: str) -> None:
    had = sorted(tree.experiments.iterdir())
    with pytest.raises(errors.FrontierError, match=words):
        add_new(replace(SAID, **changes), tree, DAY)
    assert sorted(tree.experiments.iterdir()) == had


def test_a_name_that_ended_is_not_used_again(tree: Tree) -> None:
    tree.log.write_text(tree.log_with("2026-11-30", "half", "deleted", ["numbers"]))
    with pytest.raises(errors.InvalidValue, match="has this one"):
        add_new(SAID, tree, DAY)


def test_an_arm_passes_on_what_it_states_and_leaves_the_rest_to_the_machine() -> None:
    """Planted break: an arm that said ops=mlx, the general default, measured another engine than a user here gets."""
    config = arm_of(["compile=step", "blas=bundled", "mlx_compile=off"], "--candidate").stack_config("m", "openblas")
    assert config.levers == (("compile", "step"),)
    assert (config.blas, config.compile) == ("bundled", False)
    assert arm_of(["stack=mlx-lm"], "--base").stack_config("m", "openblas").levers == ()


def test_a_lever_that_is_compared_is_stated_in_both_arms() -> None:
    """What auto is depends on the machine; a declaration writes the table's default into the arm that left it open."""
    both = stating(arm_of([], "--base"), arm_of(["ops=lean"], "--candidate"))
    assert (both.ops, both.fuse) == ("mlx", "auto")
    with pytest.raises(errors.InvalidValue, match=r"experiment.ops='auto' .*stated in both arms"):
        compose("fuse", ["experiment.lever=[fuse,ops]", "experiment.candidate.ops=lean"])
