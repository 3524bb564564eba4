"""Workloads by name: their sizes, prompts and refusals, one tiny sample of each, and that two never pool."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from lab_bench import Lab, make_lab
from test_stability import sample

from engine import errors
from lab.cli import main
from lab.config import compose
from lab.session import extended
from lab.store import Store
from lab.tables import SampleRow, SessionEventRow, SessionRow, WorkloadRow
from lab.workload_bench import run_workload
from lab.workloads import (
    LoadConf,
    arrivals_s,
    check_workload,
    names,
    probe_of,
    prompts_of,
    read_workload,
    tokens_of_session,
)
from oracles.client import Worker
from oracles.contract import DrawProbe, LoadProbe, RowsProbe, StackConfig, TimeProbe, Trace

ZOO = Path(__file__).resolve().parents[1] / "zoo" / "draft-0.5m"
# name -> prompt tokens of the longest row, new tokens of a row, rows, tokens that a sample feeds
SIZES = {
    "closed-loop": (64, 33, 12, 768),
    "continuations": (32, 96, 16, 512),
    "fan-out": (288, 48, 8, 2304),
    "long-decode": (64, 513, 1, 64),
    "long-prompt-2k": (2000, 33, 1, 2000),
    "long-prompt-8k": (8000, 33, 1, 8000),
    "open-loop": (64, 33, 12, 768),
    "own": (128, 49, 1, 128),
    "ragged": (120, 48, 8, 596),
    "short-chat": (48, 64, 1, 48),
}
TINY = {"fan-out": (40, 32), "ragged": (100, 0)}  # name -> prompt tokens, of which shared


def tiny(name: str) -> tuple[LoadConf, int, int]:
    """A workload with its own shape, in tokens that a test has time for."""
    load, prompt_tokens, _ = read_workload(name)
    prompt_tokens, shared = TINY.get(name, (min(prompt_tokens, 24), 0))
    return replace(load, shared_tokens=shared, every_s=min(load.every_s, 0.01)), prompt_tokens, 33


def test_the_command_lists_each_with_its_token_counts(capsys: pytest.CaptureFixture[str]) -> None:
    """A workload that is added, or changes its size, without this table and the documents fails here."""
    assert main(["lab", "workloads", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out.splitlines()[-1])["workloads"]
    found = {r["name"]: (r["prompt_tokens"], r["max_tokens"], r["rows"], r["tokens_in"]) for r in rows}
    assert found == SIZES
    assert set(names()) == set(SIZES)
    assert all(row["about"] for row in rows)


def test_prompts_share_a_head_and_are_as_long_as_they_should_be() -> None:
    load = LoadConf(kind="rows", rows=3, shared_tokens=4, shorter=2)
    ids = list(range(tokens_of_session(load, 10)))
    assert prompts_of(load, 10, ids) == [
        (0, 1, 2, 3, *range(4, 10)),
        (0, 1, 2, 3, *range(10, 14)),
        (0, 1, 2, 3, 14, 15),
    ]
    with pytest.raises(errors.InvalidValue, match=r"token ids of a session=15 .*16"):
        prompts_of(load, 10, ids[:-1])


def test_arrivals_are_seeded_and_grow() -> None:
    load = read_workload("open-loop")[0]
    found = arrivals_s(load)
    assert found == arrivals_s(load)
    assert found[0] == 0
    assert list(found) == sorted(set(found))
    assert len(found) == load.rows
    mean = found[-1] / (load.rows - 1)
    assert 0.5 * load.every_s < mean < 2 * load.every_s


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"kind": "many"}, "workload.kind='many'"),
        ({"rows": 2}, "workload.rows=2 .*1, of single"),
        ({"kind": "rows", "rows": 1}, "workload.rows=1"),
        ({"kind": "closed", "rows": 4}, r"workload.concurrency=0 .*1\.\.4"),
        ({"kind": "closed", "rows": 4, "concurrency": 5}, r"1\.\.4, its requests"),
        ({"kind": "rows", "rows": 4, "concurrency": 2}, "0, of rows"),
        ({"kind": "open", "rows": 4}, "workload.every_s=0.0 .*seconds above 0"),
        ({"kind": "rows", "rows": 4, "prompts": 2}, "workload.prompts=2"),
        ({"kind": "rows", "rows": 4, "shorter": 4}, "workload.prompt_tokens=10 .*more than 12"),
        ({"kind": "rows", "rows": 4, "shared_tokens": 10}, "a token of its own"),
    ],
)
def test_refusals(fields: dict[str, object], named: str) -> None:
    with pytest.raises(errors.InvalidValue, match=named):
        check_workload(LoadConf(**fields), 10)  # type: ignore[arg-type]


def test_an_override_takes_the_sizes_of_the_workload_and_the_file_those_of_the_experiment() -> None:
    assert compose("fuse").workload == LoadConf()
    named = compose("on_write", ["workload=short-chat"])
    assert (named.workload.name, named.profile.prompt_tokens, named.profile.max_tokens) == ("short-chat", 48, 64)
    assert compose("on_write").profile.prompt_tokens == 512
    drawn = compose("hlg")
    assert (drawn.workload.name, drawn.profile.prompt_tokens, drawn.profile.max_tokens) == ("continuations", 32, 96)
    with pytest.raises(errors.UnknownField, match=r"long-chat.*short-chat"):
        compose("fuse", ["workload=long-chat"])
    with pytest.raises(errors.InvalidValue, match=r"experiment.base.temperature=1.0"):
        compose("hlg", ["workload=short-chat", "experiment.primary=decode_tok_s"])
    with pytest.raises(errors.InvalidValue, match="agg_tok_s with a workload of rows, closed, open only"):
        compose("fuse", ["experiment.primary=agg_tok_s"])
    assert compose("fuse", ["experiment.primary=agg_tok_s", "workload=ragged"]).workload.rows == 8


@pytest.fixture
def worker() -> Iterator[Worker]:
    sampling = (("sampler", "hlg"), ("temperature", 1.0))
    with Worker(StackConfig(stack="engine", model=str(ZOO), dtype="float32", sampling=sampling)) as one:
        yield one


def test_each_workload_runs_and_says_what_it_did(worker: Worker) -> None:
    """Tokens, rows and live sampler of one tiny sample of each; a load that lets a request wait for all the others, or
    counts a token twice, fails here."""
    for name in names():
        load, prompt_tokens, max_tokens = tiny(name)
        ids = [2 + i % 1000 for i in range(tokens_of_session(load, prompt_tokens))]
        probe = probe_of(load, prompt_tokens, max_tokens, ids)
        doc = worker.probe(probe).doc
        kind = {"single": TimeProbe, "rows": RowsProbe, "drawn": DrawProbe}.get(load.kind, LoadProbe)
        assert isinstance(probe, kind), name
        assert doc["prompt_tokens"] == len(probe.token_ids), name
        if load.kind == "drawn":
            assert [len(row) for row in doc["drawn"]] == [max_tokens] * load.rows
            assert len({tuple(row) for row in doc["drawn"]}) == load.rows
            assert doc["levers"]["sampler"] == "hlg"
        else:
            assert doc["decode_tokens"] == load.rows * (max_tokens - 1), name
        if isinstance(probe, LoadProbe):
            assert len(doc["ttfts_s"]) == len(doc["e2es_s"]) == load.rows
            assert all(
                0 < first < last <= doc["whole_s"] for first, last in zip(doc["ttfts_s"], doc["e2es_s"], strict=True)
            )
            assert len(doc["gaps_s"]) == doc["decode_tokens"]
        if load.kind == "closed":  # two of twelve in work: each waits for its own turn only
            assert max(doc["ttfts_s"]) < doc["whole_s"] / 2


@pytest.mark.matrix
@pytest.mark.parametrize("name", ["ragged", "fan-out", "closed-loop", "open-loop", "short-chat"])
def test_the_bench_runs_both_stacks(name: str) -> None:
    load, prompt_tokens, max_tokens = tiny(name)
    ids = tuple(2 + i % 1000 for i in range(tokens_of_session(load, prompt_tokens)))
    arms = tuple(StackConfig(stack=stack, model=str(ZOO), dtype="float32") for stack in ("mlx-lm", "engine"))
    from lab.graph_bench import Limits

    result = run_workload(
        load, (arms[0], arms[1]), (prompt_tokens, max_tokens), ids, 1, Limits.of("shared"), Worker, lambda *_: None
    )
    assert {row.verdict for row in result.rows} == {"lab"}
    assert all(row.ratio is not None and row.ratio > 0 for row in result.rows)
    assert [row.task for row in result.rows][-1] == ("TTFT" if load.kind == "single" else "aggregate")
    assert len(result.tails) == (5 if load.kind in ("closed", "open") else 0)
    assert {s.prompt_tokens for s in result.samples} == {len(probe_of(load, prompt_tokens, max_tokens, ids).token_ids)}


@pytest.fixture
def lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Lab:
    return make_lab(tmp_path, monkeypatch)


def test_two_workloads_never_pool(lab: Lab) -> None:
    """Another workload than the declared one explores: it has a row of its own, shares no A/A, and decides nothing."""
    own = lab.run()
    other = lab.run(overrides=("workload=short-chat",))
    assert other.verdict.startswith("exploratory: ")
    assert any(why.startswith("workload.name 'short-chat', declared 'own'") for why in other.otherwise)
    with lab.store() as store:
        first, second = store.sessions("kv8")
        rows = [store.rows(WorkloadRow, id=session.workload_id)[0] for session in (first, second)]
        assert [row.name for row in rows] == ["own", "short-chat"]
        assert rows[0].sha256 != rows[1].sha256
        assert [d.session_id for d in store.decisions("kv8")] == [first.id]
        assert not store.rows(SessionEventRow, session_id=second.id, event="aa-shared")
        view = {(r.session_id, r.decode_tokens) for r in store.rows(SampleRow)}
        assert view == {(first.id, 48), (second.id, 63)}
    assert own.row == "4"


def test_equal_token_ids_of_another_shape_are_another_workload(lab: Lab) -> None:
    """The hash of a workload holds its shape: the same ids as one row and as several would else be one."""
    lab.run(profile="quick")
    with Store.open(lab.url) as store:
        session = store.rows(SessionRow)[0]
        assert store.rows(WorkloadRow, id=session.workload_id)[0].concurrency == 1


def test_a_sample_has_what_its_workload_adds() -> None:
    one = replace(sample("ab", "base", 0, 0, 0, "ABBA", 10.0), decode_tokens=60)
    found = extended(one, Trace({}, {"whole_s": 2.0, "rows": 4}))
    assert (found.agg_tok_s, found.self_bleu) == (32.0, None)
    assert extended(one, Trace({}, {"drawn": [[1, 2, 3, 4, 5]] * 2})).self_bleu == pytest.approx(1.0)
