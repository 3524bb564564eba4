"""`frontier trace`: a schedule is read strictly, replayed the same way each time, and drawn."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from engine import SamplingParams, errors, load
from lab.cli import main
from lab.graph_models import build
from lab.trace import draw, read_schedule, replay
from oracles.tiny import tiny_model

LINES: Sequence[dict[str, object]] = (
    {"turn": 0, "prompt": [5, 9, 2, 7, 11, 3, 8], "max_tokens": 6, "ignore_eos": True},
    {"turn": 1, "prompt": [5, 9], "max_tokens": 3, "temperature": 1.0, "seed": 4, "ignore_eos": True},
    {"turn": 2, "prompt": [4], "max_tokens": 50, "cancel": 6, "ignore_eos": True},
    {"turn": 2, "prompt": [6, 6, 6], "max_tokens": 2, "priority": 1, "ignore_eos": True},
)


def write(path: Path, lines: Sequence[dict[str, object]]) -> Path:
    path.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    return path


def test_a_schedule_is_replayed_turn_by_turn(tmp_path: Path) -> None:
    arrivals = read_schedule(write(tmp_path / "a.jsonl", LINES))
    runs = []
    for _ in range(2):
        with load(tiny_model("llama"), drive="manual", batch=2, prefill_chunk=3) as engine:
            runs.append(replay(engine, arrivals))
    first, second = runs
    assert [m.decoded for m in first.moments] == [m.decoded for m in second.moments]
    assert [getattr(o, "tokens", None) for o in first.outcomes] == [getattr(o, "tokens", None) for o in second.outcomes]
    reasons = [getattr(o, "finish_reason", None) for o in first.outcomes]
    assert reasons == ["length", "length", "cancelled", "length"]
    prefilled = [line for m in first.moments for line in m.prefilled]
    assert prefilled.count(0) == 2  # six tokens in chunks of three
    assert max(len(m.decoded) for m in first.moments) == 2
    begins = {line: m.turn for m in first.moments for line in m.admitted}
    assert begins[3] < begins.get(2, 99)  # the higher priority of two that arrive together
    assert all(m.kv_bytes > 0 for m in first.moments if m.decoded)


def test_a_join_copies_recurrent_states_and_no_keys(tmp_path: Path) -> None:
    arrivals = read_schedule(write(tmp_path / "a.jsonl", LINES[:2]))
    for folder in build(["llama", "qwen3_next"], "tiny", "float32").values():
        with load(folder, drive="manual", batch_mode="invariant") as engine:
            done = engine.generate([5, 9], SamplingParams(max_tokens=1))
            state = sum(layer.kv_bytes for layer in done.caches if layer.layout.startswith("state"))
            copied = [moment.copied_bytes for moment in replay(engine, arrivals).moments]
        assert sum(copied) == 2 * state  # of two rows, once: when the second one joins
        assert (state == 0) == ("llama" in folder.name)


def test_rows_in_one_buffer_are_copied_when_one_joins_or_leaves(tmp_path: Path) -> None:
    second: dict[str, object] = {"prompt": [8, 3], "turn": 2, "max_tokens": 2}
    arrivals = read_schedule(write(tmp_path / "a.jsonl", [{"prompt": [5, 9, 2, 7], "max_tokens": 9}, second]))
    (folder,) = build(["llama"], "tiny", "float32").values()
    with load(folder, drive="manual") as engine:
        sizes = engine.model_config
        run = replay(engine, arrivals)
    token = 2 * 4 * sizes["num_hidden_layers"] * sizes["num_key_value_heads"] * sizes["head_dim"]  # bytes
    copied = {moment.turn: moment.copied_bytes for moment in run.moments if moment.copied_bytes}
    # As long as the longer row, which had its prompt and two steps by then.
    assert copied == {2: 2 * 6 * token}


def test_the_command_prints_a_table_and_draws_the_timeline(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    schedule, picture = write(tmp_path / "a.jsonl", LINES), tmp_path / "timeline.svg"
    code = main(
        ["trace", str(schedule), "--model", str(tiny_model("llama")), "--batch", "2", "--out", str(picture), "--json"]
    )
    document = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert code == 0
    assert [row["outcome"] for row in document["requests"]] == ["length", "length", "cancelled", "length"]
    assert "request 3" in picture.read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("line", "error"),
    [
        ('{"prompt": [1]', errors.CorruptFile),
        ("[1, 2]", errors.CorruptFile),
        ('{"turn": 0}', errors.CorruptFile),
        ('{"prompt": [1], "turn": -1}', errors.InvalidValue),
        ('{"prompt": [1], "turn": 5, "cancel": 4}', errors.InvalidValue),
        ('{"prompt": [1], "temprature": 1}', errors.UnknownField),
        ("", errors.CorruptFile),
    ],
)
def test_a_bad_line_is_an_error(tmp_path: Path, line: str, error: type[Exception]) -> None:
    path = tmp_path / "bad.jsonl"
    path.write_text(line + "\n", encoding="utf-8")
    with pytest.raises(error):
        read_schedule(path)


def test_a_picture_of_a_kind_that_nobody_draws_is_refused(tmp_path: Path) -> None:
    schedule = write(tmp_path / "a.jsonl", LINES)
    assert main(["trace", str(schedule), "--out", "timeline.txt"]) == 2
    arrivals = read_schedule(schedule)
    with load(tiny_model("llama"), drive="manual") as engine:
        draw(replay(engine, arrivals[:1]), tmp_path / "one.png")
    assert (tmp_path / "one.png").stat().st_size > 0
