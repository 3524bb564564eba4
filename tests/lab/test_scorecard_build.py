"""From runs to a card: pools, units, grey cells, the frontier, history, and what numbers that are none do."""

from __future__ import annotations

import math
from dataclasses import asdict, replace
from pathlib import Path

import pytest
from scorecard_fakes import (
    FULL,
    KEY,
    MODEL,
    PROFILE,
    fingerprint,
    invented_run,
    model_of,
    new_run,
    record_run,
    scorecard,
)  # fmt: skip

from engine import errors
from lab.estimate import Estimate, ratio, timing
from lab.quality import Quality
from lab.recipes import AGAIN, RECIPES, REFERENCE, RecipeSpec, Sample
from lab.scorecard.build import build_model
from lab.scorecard.card import Cell, ModelCard
from lab.scorecard.ledger import RunRecord
from lab.scorecard.load import keys_to_show, load
from lab.scorecard.pools import newest_pool, pool_key, units_of, usable
from lab.scorecard.runs import NothingMeasured, Run, read_runs
from lab.scorecard.steadiness import aa_reasons, machine_reasons, spread_reasons
from lab.scorecard.words import findings, headline
from lab.store import Store


@pytest.fixture(scope="module")
def card(tmp_path_factory: pytest.TempPathFactory) -> ModelCard:
    """Of one quick run."""
    return scorecard(tmp_path_factory.mktemp("quick") / "lab.sqlite").models[0]


@pytest.fixture(scope="module")
def full(tmp_path_factory: pytest.TempPathFactory) -> ModelCard:
    """Of a full run on a machine of one's own, with an A/A; a quick run came after it."""
    return scorecard(tmp_path_factory.mktemp("full") / "lab.sqlite", (FULL, PROFILE), "quiet").models[0]


def test_a_run_comes_back_from_the_database_as_it_was_measured(tmp_path: Path) -> None:
    """Planted breaks that fail here: a sample not stored, KL units rounded, a refusal lost."""
    with Store.open(str(tmp_path / "lab.sqlite")) as store:
        uid = record_run(store)
        (run,) = read_runs(store, KEY)
    assert (run.uid, run.outcome, run.model) == (uid, "finished", MODEL)
    assert len(run.samples) == 8 * PROFILE.rounds
    assert run.profile == PROFILE
    assert run.specs == RECIPES
    assert run.refused == {"optiq kv4": "optiq: NotImplementedError: no 4-bit here"}
    assert run.quality["engine kv8"].same_bits_as == "mlx-lm kv8"
    assert len(run.quality["mlx-lm kv4"].kl_units) == 5
    assert run.code == "0123456789ab"
    assert run.limits.name == "shared"


def test_every_recipe_has_a_row_and_one_that_was_refused_says_why(card: ModelCard) -> None:
    assert [row.name for row in card.rows] == [spec.name for spec in RECIPES]
    refused = card.row("optiq kv4")
    assert refused is not None
    assert refused.why_not == "optiq: NotImplementedError: no 4-bit here"


def test_one_launch_makes_speeds_grey_and_counts_stay_plain(card: ModelCard) -> None:
    """Planted breaks: rounds of one process counted as launches; bytes or KL made grey by the clock."""
    assert (card.unit, card.units) == ("round", 3)
    for row in card.measured:
        decode = row.cell("decode_tok_s")
        assert decode.state == "unstable"
        assert decode.reasons[0] == "one launch: how launches differ is not known"
        assert "no A/A in these runs" in decode.reasons
        for name in ("peak_bytes", "kv_bytes", "artifact_bytes", "kl_nats", "perplexity"):
            assert row.cell(name).state == "stable", name
    assert any("One launch" in note for note in card.notes)


def test_a_full_run_goes_before_a_later_quick_one_and_is_counted_by_launch(full: ModelCard) -> None:
    assert full.profile.name == "full"
    assert (full.unit, full.units) == ("launch", FULL.rounds)
    assert any("is newer, and its profile is quick" in why for why in full.left_out)
    assert full.aa.estimate is not None
    assert full.aa.estimate.n == FULL.rounds
    assert AGAIN not in [row.name for row in full.rows]
    wide = full.row("engine native")
    assert wide is not None
    assert any("above 2.0 %" in reason for reason in wide.cell("decode_tok_s").reasons), "the quiet class's delta"


def with_run(run: Run, **changes: object) -> Run:
    return replace(run, **changes)  # type: ignore[arg-type]


def test_runs_of_one_source_are_pooled_and_of_another_are_history() -> None:
    """Planted breaks: pooling over sources, environments or sizes; history that leaves the older source out."""
    first = invented_run(RECIPES)
    again = with_run(first, uid="b", started="2026-11-29T16:00:00")
    other = with_run(first, uid="c", started="2026-11-29T17:00:00", arms_sha256="z" * 64, git_sha="fedcba9876543210")
    card = build_model([first, again, other])
    assert card is not None
    assert [run.uid for run in card.runs] == ["c"]
    assert [[run.uid for run in point.runs] for point in card.history] == [[first.uid, "b"], ["c"]]
    assert [point.code for point in card.history] == ["0123456789ab", "fedcba987654"]
    pooled = build_model([first, again])
    assert pooled is not None
    assert (pooled.unit, pooled.units) == ("launch", 2)
    point = pooled.history[0].ratio.estimate
    assert point is not None
    assert point.n == 2
    assert first.profile is not None
    for changes in (
        {"env_sha256": "y"},
        {"model_sha256": "y"},
        {"profile": replace(first.profile, decode_tokens=99)},
        {"profile": replace(first.profile, kl_length=99)},
    ):
        assert len(newest_pool([first, with_run(first, uid="d", **changes)])) == 1, changes
        assert pool_key(first) != pool_key(with_run(first, **changes)), changes


def test_history_leaves_other_sizes_out() -> None:
    first = invented_run(RECIPES)
    assert first.profile is not None
    longer = with_run(first, uid="b", profile=replace(first.profile, prompt_tokens=999))
    card = build_model([longer, first])
    assert card is not None
    assert [point.runs[0].uid for point in card.history] == [first.uid]


def test_units_are_geometric_means_of_launches_that_every_recipe_has() -> None:
    run = invented_run(RECIPES[:2], rounds=4)
    halves = tuple(replace(s, launch=s.round // 2) for s in run.samples if (s.recipe, s.round) != ("engine native", 3))
    units = units_of([with_run(run, samples=halves)], [s.name for s in RECIPES[:2]])
    assert units.kind == "launch"
    mine = [s.decode_tok_s for s in halves if s.recipe == "mlx-lm native" and s.launch == 0]
    assert math.isclose(units.values("mlx-lm native", "decode_tok_s")[0], math.sqrt(mine[0] * mine[1]))
    gone = tuple(s for s in run.samples if (s.recipe, s.round) != ("engine native", 3))
    rounds = units_of([with_run(run, samples=gone)], [s.name for s in RECIPES[:2]])
    assert (rounds.kind, rounds.count) == ("round", 3)


def test_a_run_that_did_not_end_is_named_and_not_shown(tmp_path: Path) -> None:
    """Planted breaks: a failed run's samples on the page; a killed run shown as finished."""
    run = invented_run(RECIPES)
    assert "failed after 27 samples: disk full" in usable(with_run(run, outcome="failed", words="disk full"))
    assert "has not ended" in usable(with_run(run, outcome="open"))
    assert "no samples" in usable(with_run(run, samples=()))
    assert build_model([with_run(run, outcome="open")]) is None
    with Store.open(str(tmp_path / "lab.sqlite")) as store:
        with pytest.raises(OSError, match="no space"), RunRecord.begin(store, new_run(fingerprint(), PROFILE)):
            raise OSError("no space")
        card = load(store, KEY)
    assert card.models == ()
    assert "no space" in card.notes[0]
    assert "frontier scorecard --measure" in card.notes[-1]


def test_a_number_that_is_none_is_absent_with_its_reason_and_takes_the_recipe_off_the_frontier() -> None:
    """Planted breaks: nan in a mean, a recipe with half its axes on the frontier."""
    run = invented_run(RECIPES)
    bad = tuple(replace(s, decode_tok_s=math.nan) if s.recipe == "engine kv8" else s for s in run.samples)
    quality = dict(run.quality)
    quality["engine kv4"] = replace(quality["engine kv4"], kl_units=(math.nan,) * 5)
    card = model_of(with_run(run, samples=bad, quality=quality))
    speed, kl = card.row("engine kv8"), card.row("engine kv4")
    assert speed is not None
    assert kl is not None
    assert speed.cell("decode_tok_s") == Cell.absent("a stored value is no positive number")
    assert speed.off_frontier == "no decode_tok_s: a stored value is no positive number"
    assert (speed.on_frontier, speed.p_frontier) == (None, None)
    assert kl.off_frontier == "no kl_nats: a stored value is no number"
    assert card.frontier is not None
    assert "engine kv8" not in card.frontier.on


def test_without_the_reference_there_is_no_frontier_and_the_page_says_so() -> None:
    alone = invented_run([RecipeSpec("engine", "native")])
    card = model_of(alone)
    row = card.rows[0]
    assert card.frontier is None
    assert card.no_frontier == "the reference, mlx-lm native, has no numbers on all axes"
    assert row.cell("decode_ratio").reasons == ("mlx-lm native: no complete launch",)
    assert row.decode_percent is not None, "its own floor is known"
    assert card.floor is None
    assert "nothing was measured to compare it with" in headline(card)
    only = model_of(invented_run([REFERENCE]))
    assert only.rows[0].on_frontier
    assert headline(only) == "engine native is not among the measured recipes"


def test_a_run_without_ceilings_or_artifact_says_so() -> None:
    card = model_of(with_run(invented_run(RECIPES), ceilings=None, artifacts={}))
    assert card.floor is None
    assert card.frontier is None
    assert card.rows[0].cell("artifact_bytes").reasons == ("no artifact is stored",)


def test_reasons_follow_the_limits_of_the_class() -> None:
    limits = invented_run(RECIPES).limits
    tight, wide = timing([10.0, 10.01, 10.02, 10.01]), timing([10.0, 14.0, 9.0])
    assert list(spread_reasons([10.0, 10.01, 10.02, 10.01], tight, "launch", limits)) == []
    found = list(spread_reasons([10.0, 14.0, 9.0], wide, "launch", limits))
    assert any("interval half-width" in reason for reason in found)
    assert any(reason.startswith("sd 2") and reason.endswith("above 12.0 %") for reason in found)
    assert any("half-width unbounded" in reason for reason in spread_reasons([10.0], timing([10.0]), "launch", limits))
    steal = list(machine_reasons([0.2, None], [], limits))
    assert steal == ["steal 20.0 %, above 1.0 %"]
    load = {"name": "load per core", "value": 2.0, "limit": 0.25, "status": "dirty"}
    heat = {"name": "thermal", "value": 3.0, "limit": 0.0, "status": "dirty"}
    assert list(machine_reasons([], [load, heat], limits)) == ["thermal 3, limit 0"]
    assert len(list(machine_reasons([], [load, heat], replace(limits, name="quiet")))) == 2


def test_an_aa_that_differs_makes_every_speed_grey() -> None:
    limits = invented_run(RECIPES).limits
    gaps = [0.05 + 0.001 * i for i in range(8)]
    cell = Cell(ratio([math.exp(g) for g in gaps], [1.0] * 8), "stable")
    assert any(reason.startswith("A/A differs: two-sided p 0.008") for reason in aa_reasons(cell, gaps, limits))
    even = [0.01, -0.012, 0.008, -0.009, 0.011, -0.01, 0.007, -0.006]
    calm = Cell(ratio([math.exp(g) for g in even], [1.0] * 8), "stable")
    assert not any("differs" in reason for reason in aa_reasons(calm, even, limits))


def test_words_claim_no_more_than_the_interval_and_the_class(card: ModelCard, full: ModelCard) -> None:
    row = card.row("engine native")
    assert row is not None
    base = row.cell("decode_ratio")

    def said(low: float | None, high: float | None, state: str = "unstable", of: ModelCard = card) -> str:
        estimate = Estimate(1.05, low, high, 3, "t")
        changed = replace(row, cells=dict(row.cells) | {"decode_ratio": Cell(estimate, state)})  # type: ignore[arg-type]
        if state == "stable":
            changed = replace(changed, cells=dict(changed.cells) | {"decode_tok_s": Cell(estimate, "stable")})
        return headline(replace(of, rows=tuple(changed if r.name == row.name else r for r in of.rows)))

    assert base.estimate is not None
    assert "No difference shown" in said(0.9, 1.1)
    assert said(1.02, 1.1) == "Unstable here, no verdict: the engine decodes 1.05× as fast as mlx-lm"
    assert "noisy" in said(0.1, 9.0)
    assert "no interval" in said(None, None)
    assert said(1.02, 1.1, "stable", full) == "The engine decodes 1.05× as fast as mlx-lm"
    assert said(1.02, 1.1, "stable").startswith("Screened"), "a quick profile decides nothing"
    lines = findings(card)
    assert any("unstable, so nothing is claimed" in line for line in lines)
    assert any("kv4 makes the KV cache" in line for line in lines)
    assert any(line.startswith("Screened, not decided: on the frontier") for line in lines)
    assert any("The speed of every recipe is unstable" in line for line in lines)


def test_unknown_keys_and_models_list_the_known_and_nothing_is_an_error(tmp_path: Path) -> None:
    with Store.open(str(tmp_path / "lab.sqlite")) as store:
        with pytest.raises(NothingMeasured, match="frontier scorecard --measure"):
            keys_to_show(store, None)
        record_run(store)
        record_run(store, print_=fingerprint("linux-x86_64-cuda-sm90"))
        assert keys_to_show(store, None) == [KEY, "linux-x86_64-cuda-sm90"]
        with pytest.raises(errors.UnknownField, match=f"(?s)known: {KEY}, linux-x86_64-cuda-sm90"):
            keys_to_show(store, "m4")
        with pytest.raises(errors.UnknownField, match="smollm2-135m-instruct"):
            load(store, KEY, ["llama"])
        assert len(load(store, KEY, [MODEL]).models) == 1
        assert keys_to_show(store, None, [MODEL]) == [KEY, "linux-x86_64-cuda-sm90"]
        with pytest.raises(errors.UnknownField, match=f"unknown 'llama'; known: {MODEL}"):
            keys_to_show(store, None, ["llama"])
        other = replace(new_run(fingerprint("darwin-arm64-apple-m4"), PROFILE), model="llama")
        with RunRecord.begin(store, other):
            pass
        assert keys_to_show(store, None, ["llama"]) == ["darwin-arm64-apple-m4"]


def test_the_same_database_gives_the_same_card(tmp_path: Path) -> None:
    path = tmp_path / "lab.sqlite"
    first = scorecard(path)
    with Store.open(str(path)) as store:
        assert load(store, KEY) == first


def test_two_models_under_one_name_are_told_apart(tmp_path: Path) -> None:
    first = invented_run(RECIPES)
    cards = [build_model([run]) for run in (first, with_run(first, model_sha256="9" * 64))]
    assert all(each is not None for each in cards)
    with Store.open(str(tmp_path / "lab.sqlite")) as store:
        for sha in ("1" * 64, "2" * 64):
            run = replace(new_run(fingerprint(), PROFILE), model_sha256=sha)
            with RunRecord.begin(store, run) as record:
                record.event("fitted", {"profile": asdict(PROFILE), "notes": []})
                for sample in first.samples:
                    record.sample(sample)
        labels = [model.label for model in load(store, KEY).models]
    assert labels == [f"{first.timing_model} 11111111", f"{first.timing_model} 22222222"]


def test_quality_that_is_no_number_is_never_stored(tmp_path: Path) -> None:
    with Store.open(str(tmp_path / "lab.sqlite")) as store:
        bad = Quality("engine kv8", (math.nan,), (1.0,), 1.0, 1)
        named = pytest.raises(errors.InvalidValue, match="quality of engine kv8")
        with named, RunRecord.begin(store, new_run(fingerprint(), PROFILE)) as record:
            record.quality({"engine kv8": bad}, "d")
        (run,) = read_runs(store, KEY)
    assert run.outcome == "failed"
    assert run.quality == {}


def test_a_servers_bytes_may_be_unknown(tmp_path: Path) -> None:
    spec = RecipeSpec("openai:http://127.0.0.1:9/v1", "m")
    run = invented_run((*RECIPES, spec))
    mine = tuple(
        replace(s, peak_bytes=None, kv_bytes=None, rss_bytes=None) if s.recipe == spec.name else s for s in run.samples
    )
    quality = {name: each for name, each in run.quality.items() if name != spec.name}
    row = model_of(with_run(run, samples=mine, quality=quality)).row(spec.name)
    assert row is not None
    assert row.cell("decode_tok_s").value is not None
    assert row.off_frontier == "no peak_bytes, artifact_bytes, kl_nats: a server does not tell"
    assert isinstance(mine[0], Sample)
