"""The device bench: its order, going on where it stopped, refusals, its report, and samples between databases."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import fields, replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from engine import Draw, errors
from lab import cli, device_ledger
from lab.batch_bench import BatchSample
from lab.bench_tables import BenchEventRow, BenchRunRow, BenchSampleRow
from lab.commands.bench_device import print_tables
from lab.console import Output
from lab.device_bench import DISCARDED, Taking, expected_s, launch_of
from lab.device_ceilings import count
from lab.device_ledger import DeviceRun, Setup, export, take_in, taken, write_export
from lab.device_parity import export_cells, parity_lines
from lab.device_plan import AA_LAUNCHES, FAST, LEAN, LOOKS, Cell, Group, Turn, make_turns
from lab.device_report import Report, _verdict, read_report
from lab.device_words import markdown
from lab.store import Store
from oracles.contract import HostProbe, OracleCrashed, OracleRefused, RowsProbe, StackConfig, Trace

ROOT = Path(__file__).resolve().parents[2]
KEY = "linux-x86_64-cuda-sm90"
TINY = Group(model="tiny", packing="bf16")
FOLDERS = {("tiny", "bf16"): Path("llama-bf16-drawn-0"), ("0.6b", "4bit"): Path("qwen3-4bit-drawn-0")}
ABOUT = {
    "ceilings": {"copy_gb_s": 4000.0, "read_gb_s": 4400.0, "bf16_tflop_s": 800.0},
    "models": {
        "tiny bf16": {"decode_bytes": 4.4e9, "prefill_flops": 1e9},
        "0.6b 4bit": {"decode_bytes": 4e8, "prefill_flops": 1e9},
    },
}


def fingerprint(**changes: object) -> SimpleNamespace:
    code = SimpleNamespace(arms_sha256=changes.pop("arms", "a"))
    return SimpleNamespace(boot="b", machine_key=KEY, packages={"mlx": "1", "mlx-lm": "2"}, code=code, **changes)


@pytest.fixture(autouse=True)
def _machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """The rows of a machine that is not here."""
    from lab.tables import CodeRow, EnvRow, MachineRow

    def machine(store: Store, _print: object) -> int:
        return store.once(MachineRow(key=KEY, sha256="m", facts={"accelerator": "GPU"}), sha256="m")

    def env(store: Store, _print: object) -> int:
        row = EnvRow(sha256="e", python="3.12", packages={"mlx": "1", "mlx-lm": "2"}, lock_sha256="", variables={})
        return store.once(row, sha256="e")

    def code(store: Store, _print: object) -> int:
        return store.once(CodeRow(sha256="c", git_sha="f" * 40, dirty=False, diff_sha256=""), sha256="c")

    for name, made in (("add_machine", machine), ("add_env", env), ("add_code", code)):
        monkeypatch.setattr(device_ledger, name, made)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with Store.open(f"sqlite:///{tmp_path / 'lab.sqlite'}") as opened:
        yield opened


class Fake:
    """Rows at a planted speed; `refuse`: numbers of rows that the engine cannot run."""

    def __init__(self, config: StackConfig, speed: float, refuse: tuple[int, ...], log: list[str]) -> None:
        self.config, self.speed, self.refuse, self.log, self.pid = config, speed, refuse, log, len(log)
        self.rng = np.random.default_rng(len(log))
        log.append(f"start {config.stack}")

    def probe(self, probe: RowsProbe | HostProbe) -> Trace:
        if isinstance(probe, HostProbe):
            names = ("build_s", "encode_s", "wait_s", "step_s", "device_s")
            return Trace({}, dict.fromkeys(names, 0.001))
        if self.config.stack == "engine" and len(probe.rows) in self.refuse:
            raise OracleRefused("engine: not that many")
        rows, slower = len(probe.rows), float(np.exp(self.rng.normal(0, 0.001))) / self.speed
        self.log.append(self.config.stack)
        caches = [{"scheme": "native", "layout": "full", "offset": 60}]
        doc = {"prefill_s": 0.1 * slower, "decode_s": 0.4 * slower, "ttft_s": 0.1 * slower, "whole_s": 0.5 * slower}
        doc |= {"prompt_tokens": len(probe.token_ids), "decode_tokens": rows * (probe.limit - 1), "rows": rows}
        doc |= {"peak_bytes": 100, "rss_bytes": 1, "kv_bytes": 8, "kv_status": "native", "caches": caches, "levers": {}}
        return Trace({}, doc)

    def close(self) -> None:
        self.log.append(f"close {self.config.stack}")


def take_turns(
    store: Store,
    turns: list[Turn],
    *,
    speed: float = 1.25,
    refuse: tuple[int, ...] = (),
    crash: str = "",
    clock: list[float] | None = None,
    deadline: float | None = None,
    arms: str = "a",
) -> tuple[list[Turn], list[str]]:
    """Take what is left of the turns; (what is left then, what happened)."""
    setup, log = Setup(print=fingerprint(arms=arms), folders=FOLDERS, blas="bundled"), []  # type: ignore[arg-type]

    def start(config: StackConfig) -> Fake:
        if crash and crash in [value for _, value in config.levers]:
            raise OracleCrashed("died")
        return Fake(config, speed if config.stack == "engine" else 1.0, refuse, log)

    left, seen = taken(store, setup, turns)
    with DeviceRun.begin(store, setup, ABOUT, "frontier bench device") as keep:
        taking = Taking(
            folders=FOLDERS,
            blas="bundled",
            start=start,
            keep=keep,
            tick=lambda _what: None,
            clock=iter(clock).__next__ if clock else lambda: 0.0,
        )
        return taking.turns(left, deadline, seen), log


def turn(
    launch: int = 0, rows: tuple[int, ...] = (1,), part: str = "ab", group: Group = TINY, host: bool = False
) -> Turn:
    cells = tuple(Cell(group=group, prompt=16, rows=n) for n in rows)
    return Turn(group=group, part=part, launch=launch, cells=cells, host=host)  # type: ignore[arg-type]


def test_the_plan_begins_with_what_says_most_and_holds_every_turn_once() -> None:
    turns = make_turns()
    assert [t.group.name for t in turns[:3]] == ["0.6b 4bit", "8b 4bit", "135m 4bit"]
    assert all(t.host and [(c.prompt, c.rows) for c in t.cells] == [(128, 1), (128, 8)] for t in turns[:6])
    taken_ = [(c.name, t.part, t.launch) for t in turns for c in t.cells]
    assert len(taken_) == len(set(taken_))
    full = {c for t in turns for c in t.cells if c.full}
    assert {(c.group.model, c.group.packing, c.prompt, c.rows) for c in full} == {
        (model, "4bit", 128, rows) for model in ("0.6b", "8b") for rows in (1, 8)
    }
    for cell in full:
        launches = {part: [n for name, p, n in taken_ if (name, p) == (cell.name, part)] for part in ("ab", "aa")}
        assert launches == {"ab": list(range(LOOKS[1][0])), "aa": list(range(AA_LAUNCHES))}
    plain = {c.name for t in turns for c in t.cells if not c.group.levers}
    assert len(plain) == 3 * 2 * 2 * 3
    assert {t.group.levers for t in turns} == {(), LEAN, FAST}
    assert all(not t.group.levers for t in make_turns(levers=False))
    with pytest.raises(errors.InvalidValue, match="--rows"):
        make_turns(rows=(0,))


def test_a_launch_takes_two_quads_of_each_cell_in_one_pair_of_processes(store: Store) -> None:
    left, log = take_turns(store, [turn(rows=(1, 2), host=True)])
    assert left == []
    assert sorted(log[:2]) == ["start engine", "start mlx-lm"]
    assert sorted(log[-2:]) == ["close engine", "close mlx-lm"]
    assert log.count("engine") == log.count("mlx-lm") == 2 * (DISCARDED + 4)
    rows = store.rows(BenchSampleRow)
    assert [row.part for row in rows].count("host") == 2
    order = [row.document["order"] for row in rows if row.part == "ab" and not row.document["warm_up"]]
    cell = turn().cells[0]
    assert order[:8:4] == [quad.order for quad in launch_of(cell, "ab", 0).quads]


def test_a_later_call_goes_on_and_repeats_nothing(store: Store) -> None:
    turns = [turn(0, (1, 2)), turn(1, (1, 2)), turn(2)]
    first = expected_s(turns[0], {})
    left, _ = take_turns(store, turns, deadline=first, clock=[0.0, first * 0.9, first * 0.9])
    assert [t.launch for t in left] == [1, 2]
    left, log = take_turns(store, turns)
    assert left == []
    assert log.count("start engine") == 2
    assert take_turns(store, turns) == ([], [])
    # Another source of the arms is another setup: nothing of it is there.
    assert take_turns(store, turns, arms="b")[1].count("start engine") == 3


def test_half_a_launch_is_taken_again(store: Store) -> None:
    take_turns(store, [turn(0)])
    kept = store.rows(BenchSampleRow)
    setup = Setup(print=fingerprint(), folders=FOLDERS, blas="bundled")  # type: ignore[arg-type]
    assert taken(store, setup, [turn(0)])[0] == []
    half = device_ledger.whole_launches(kept[:-1])
    assert half == {}
    assert set(device_ledger.whole_launches(kept)) == {0}


def test_what_is_refused_or_dies_is_told_and_the_rest_goes_on(store: Store) -> None:
    fast = replace(TINY, levers=FAST)
    turns = [turn(rows=(2, 1)), turn(group=fast), turn(1)]
    left, _ = take_turns(store, turns, refuse=(2,), crash="fast")
    assert left == []
    events = {row.event: row.detail for row in store.rows(BenchEventRow)}
    assert events["refused"]["cell"] == "tiny bf16, 16 x 2"
    assert "not that many" in events["refused"]["why"]
    assert events["crashed"]["turn"].startswith("tiny bf16 batch_mode=fast")
    report = read_report(store, KEY, [c for t in turns for c in t.cells])
    shown = {cell.cell: cell for cell in report.cells}
    assert shown["tiny bf16, 16 x 2"].verdict == "not run"
    assert "not that many" in shown["tiny bf16, 16 x 2"].why
    assert shown["tiny bf16, 16 x 1"].launches == (2, 0)
    # What was refused is not tried again; what died is.
    again = taken(store, Setup(print=fingerprint(), folders=FOLDERS, blas="bundled"), turns)[0]  # type: ignore[arg-type]
    assert [t.group.levers for t in again] == [FAST]


def report_of(store: Store, turns: list[Turn], **how: object) -> Report:
    take_turns(store, turns, **how)  # type: ignore[arg-type]
    return read_report(store, KEY, [c for t in turns[:1] for c in t.cells])


def test_a_report_gives_the_planted_ratio_and_the_share_of_the_limit(store: Store) -> None:
    (cell,) = report_of(store, [turn(0), turn(1), turn(0, part="aa")]).cells
    assert cell.aa is not None
    assert abs(cell.aa.value - 1) < 0.01
    assert cell.launches == (2, 1)
    ratio = cell.ratios["decode_tok_s"]
    assert abs(ratio.value / 1.25 - 1) < 0.01
    assert ratio.low is not None
    assert ratio.low < 1.25 < ratio.high  # type: ignore[operator]
    assert cell.verdict == "screen"
    assert cell.limit_share is not None
    # 4.4 GB at 4400 GB/s: 1000 steps a second at most.
    assert abs(cell.limit_share[0] - ratio.engine / 1000) < 0.001 * ratio.engine


def planted(part: str, launch: int, speed: float) -> list[BatchSample]:
    """The eight samples of one launch in which the candidate is so much faster."""
    rng = np.random.default_rng(launch)
    samples = []
    for block, quad in enumerate(launch_of(Cell(group=TINY, prompt=16, rows=1), part, launch).quads):
        for position, role in enumerate(quad.roles):
            rate = 100.0 * (speed if role == "candidate" else 1.0) * float(np.exp(rng.normal(0, 0.001)))
            values = {"part": part, "role": role, "launch": launch, "block": 2 * launch + block, "position": position}
            values |= {"order": quad.order, "warm_up": False, "decode_tok_s": rate, "valid": True, "why": "", "t0": 0.0}
            zeros = {f.name: 0 for f in fields(BatchSample) if f.name not in values}
            samples.append(BatchSample(**zeros | values))  # type: ignore[arg-type]
    return samples


@pytest.mark.parametrize(
    ("speed", "launches", "aa", "verdict"),
    [
        (1.25, 8, 4, "faster"),
        (0.8, 8, 4, "slower"),
        (1.0, 8, 4, "undecided"),
        (1.25, 7, 4, "screen"),
        (1.25, 8, 3, "screen"),
    ],
)
def test_a_verdict_needs_the_whole_protocol(speed: float, launches: int, aa: int, verdict: str) -> None:
    parts = {
        "ab": {i: planted("ab", i, speed) for i in range(launches)},
        "aa": {i: planted("aa", i, 1.0) for i in range(aa)},
    }
    assert _verdict(parts, True)[0] == verdict
    assert _verdict(parts, False)[0] == "screen"


def parity_cell(store: Store, status: str, at: str, **cell: object) -> None:
    from lab.tables import CodeRow, MachineRow, ParityCellRow

    machine = store.once(MachineRow(key=KEY, sha256="m", facts={}), sha256="m")
    code = store.once(CodeRow(sha256="c", git_sha="f" * 40, dirty=False, diff_sha256=""), sha256="c")
    document = {"suite": "device", "model": "llama", "dtype": "bfloat16", "kv": "native", "kind": "forced"}
    document |= {"reference": "mlx-lm", "why": "", "difference": None, "bisect": None} | cell
    store.add(ParityCellRow(machine_id=machine, code_id=code, at=at, cell=document, status=status))


def test_parity_cells_travel_too_and_the_newest_of_each_counts(store: Store, tmp_path: Path) -> None:
    gap = {"tensor": "logits", "why": "values differ", "max_abs_diff": 0.5}
    parity_cell(store, "differs", "1", difference=gap)
    parity_cell(store, "equal", "2")
    parity_cell(store, "differs", "2", model="qwen3 ragged composition", difference=gap)
    parity_cell(store, "equal", "2", suite="tiny", model="other")
    write_export(tmp_path / "parity.jsonl", export_cells(store, KEY))
    with Store.open(f"sqlite:///{tmp_path / 'other.sqlite'}") as other:
        assert take_in(other, tmp_path / "parity.jsonl") == (3, 0)
        assert take_in(other, tmp_path / "parity.jsonl") == (0, 3)
        cells = export_cells(other, KEY)
    page = "\n".join(parity_lines(cells))
    assert "2 cells of `frontier parity --suite device`: 1 differs, 1 equal" in page
    assert "| llama | bfloat16 | 1 | – |  |" in page
    assert "| qwen3 | bfloat16 | 0 | 1 differs | logits: values differ, max diff 0.5 |" in page
    assert parity_lines([]) == ["Not run."]


def test_the_pages_name_what_ran_and_what_did_not(store: Store, capsys: pytest.CaptureFixture[str]) -> None:
    take_turns(store, [turn(0, (1, 2), host=True)])
    report = read_report(store, KEY)
    page = markdown(report)
    assert "| tiny bf16, 16 x 2 | 1 |" in page
    assert "8b 4bit, 128 x 1" in page.split("## Not run")[1]
    assert "frontier bench device" in page.split("## Runs")[1]
    print_tables(Output(as_json=False), report)
    assert "not run, its turn did not come yet: 0.6b 4bit" in capsys.readouterr().out
    json.dumps(export(store, KEY))


def test_weights_are_counted_by_what_they_stand_for() -> None:
    tensors = {
        "model.embed_tokens.weight": ("uint32", (100, 8)),
        "model.embed_tokens.scales": ("bfloat16", (100, 1)),
        "model.embed_tokens.biases": ("bfloat16", (100, 1)),
        "lm_head.weight": ("bfloat16", (100, 64)),
        "norm.weight": ("bfloat16", (64,)),
    }
    found = count(Draw(seed=0, bits=4, tensors=tensors), tied=False)
    assert (found.weights, found.embedding_weights) == (100 * 64 * 2 + 64, 100 * 64)
    assert found.tensor_bytes == 3200 + 200 + 200 + 12800 + 128


@pytest.mark.parametrize(
    ("line", "flag"),
    [
        (("--report", "--models", "8b"), "--models"),
        (("--report", "--plan"), "--plan"),
        (("--plan", "--minutes", "3"), "--minutes"),
        (("--key", "k"), "--key"),
        (("--report", "--take-in", "absent"), "--take-in"),
    ],
)
def test_a_flag_that_would_go_unread_is_refused(
    line: tuple[str, ...], flag: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["bench", "device", *line]) == 2
    assert f"error: {flag}=" in capsys.readouterr().err


@pytest.mark.parametrize(
    "path", sorted((ROOT / "reports").glob("**/device-samples.jsonl")), ids=lambda p: p.parent.name
)
def test_samples_of_earlier_sources_are_read(store: Store, path: Path) -> None:
    """Planted break: a field of samples that came later made every report of earlier ones fail."""
    assert take_in(store, path) == (1, 0)
    told = json.loads((path.parent / "device.json").read_text(encoding="utf-8"))
    cells = {cell.cell: cell for cell in read_report(store, KEY).cells if cell.ratios}
    assert cells
    for cell in told["cells"]:
        if cell["ratios"]:
            assert cell["ratios"]["decode_tok_s"]["value"] == pytest.approx(
                cells[cell["cell"]].ratios["decode_tok_s"].value
            )


def test_a_file_that_is_not_whole_leaves_nothing_behind(store: Store, tmp_path: Path) -> None:
    path = tmp_path / "runs.jsonl"
    run = {"format": device_ledger.FORMAT, "run": {"uid": "u"}, "events": [], "machine": {}, "env": {}, "code": {}}
    path.write_text(json.dumps(run) + "\n", encoding="utf-8")
    with pytest.raises(errors.CorruptFile, match="samples"):
        take_in(store, path)
    assert store.rows(BenchRunRow) == []
