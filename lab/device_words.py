"""A device report in words: the cells of its tables, and the Markdown page of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from lab.device_parity import parity_lines
from lab.device_report import CellReport, Ratio, Report
from lab.metrics import show

CELL_COLUMNS = (
    *("cell", "launches", "decode tok/s", "mlx-lm", "ratio", "95 %", "TTFT ms", "mlx-lm", "ratio", "prefill tok/s"),
    *("mlx-lm", "together tok/s", "mlx-lm", "ratio", "peak MiB", "mlx-lm", "of limit", "mlx-lm", "verdict", "why"),
)
# What fits on a screen.
SHORT_COLUMNS = (
    "cell",
    "decode",
    "mlx-lm",
    "ratio",
    "95 %",
    "TTFT",
    "mlx-lm",
    "together",
    "mlx-lm",
    "limit",
    "verdict",
)
HOST_COLUMNS = ("group", "stack", "build us", "encode us", "wait us", "step us", "device us", "limit us")
NOTHING = "–"


def cell_row(cell: CellReport) -> tuple[str, ...]:
    """One measured cell; the engine's value first, then mlx-lm's."""
    decode, ttft = cell.ratios["decode_tok_s"], cell.ratios["ttft_ms"]
    prefill, whole = cell.ratios["prefill_tok_s"], cell.ratios["agg_tok_s"]
    rows = int(cell.cell.rsplit("x", 1)[1])
    assert cell.peaks is not None
    assert cell.limit_share is not None
    several = (show("agg_tok_s", whole.engine), show("agg_tok_s", whole.other), f"{whole.value:.3f}")
    alone = (show("prefill_tok_s", prefill.engine), show("prefill_tok_s", prefill.other))
    return (
        cell.cell,
        f"{cell.launches[0]} + {cell.launches[1]} A/A" if cell.launches[1] else str(cell.launches[0]),
        show("decode_tok_s", decode.engine),
        show("decode_tok_s", decode.other),
        f"{decode.value:.3f}",
        _span(decode),
        f"{ttft.engine:.1f}",
        f"{ttft.other:.1f}",
        f"{ttft.value:.3f}",
        *(alone if rows == 1 else (NOTHING, NOTHING)),
        *(several if rows > 1 else (NOTHING, NOTHING, NOTHING)),
        f"{cell.peaks[0] / 2**20:,.0f}",
        f"{cell.peaks[1] / 2**20:,.0f}",
        f"{100 * cell.limit_share[0]:.0f} %",
        f"{100 * cell.limit_share[1]:.0f} %",
        cell.verdict,
        cell.why,
    )


def short_row(cell: CellReport) -> tuple[str, ...]:
    """The same cell in the columns of a screen."""
    row = cell_row(cell)
    return (row[0], *row[2:6], row[6], row[7], row[11], row[12], row[16], row[18])


def _span(ratio: Ratio) -> str:
    return NOTHING if ratio.low is None or ratio.high is None else f"{ratio.low:.3f} to {ratio.high:.3f}"


def host_rows(report: Report) -> list[tuple[str, ...]]:
    """Microseconds of one decode step of one row, without sampling."""
    rows = []
    for host in report.hosts:
        times = [host[name] for name in ("build_s", "encode_s", "wait_s", "step_s", "device_s")]
        shown = [NOTHING if value is None else f"{1e6 * value:,.0f}" for value in times]
        rows.append((str(host["group"]), str(host["stack"]), *shown, _limit_us(report, str(host["group"]))))
    return rows


def _limit_us(report: Report, group: str) -> str:
    """What reading the weights takes at the measured bandwidth, by way of a cell of one row."""
    for cell in report.cells:
        if cell.limit_share and cell.cell.startswith(f"{group}, ") and cell.cell.endswith(" x 1"):
            return f"{1e6 * cell.limit_share[0] / cell.ratios['decode_tok_s'].engine:,.0f}"
    return NOTHING


def not_run(report: Report) -> list[str]:
    """A line for each reason why a planned cell has no numbers."""
    reasons: dict[str, list[str]] = {}
    for cell in report.cells:
        if not cell.ratios:
            reasons.setdefault(cell.why, []).append(cell.cell)
    return [f"not run, {why}: {'; '.join(cells)}" for why, cells in reasons.items()]


def _table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    lines = [columns, ["---"] * len(columns), *rows]
    return ["| " + " | ".join(line) + " |" for line in lines]


def markdown(report: Report, parity: Sequence[Mapping[str, Any]] = ()) -> str:
    """The page of one machine: its ceilings, the cells, a step's time, what was not run, parity, and how."""
    lines = [f"# Device bench: {report.machine_key}", ""]
    if report.ceilings:
        c = report.ceilings
        lines += [
            f"Measured: copy {c['copy_gb_s']:,.0f} GB/s (read plus written), read {c['read_gb_s']:,.0f} GB/s, "
            f"bf16 products {c['bf16_tflop_s']:,.0f} TFLOP/s.",
            "",
        ]
    lines += [
        "Random weights of real shapes, drawn on the device; engine against mlx-lm in coin-flipped quads, two quads a "
        "launch, both processes new in each launch. A cell reads: model, packing, levers, prompt tokens x rows. A "
        "screen claims nothing; of limit: decode speed over reading all weights and caches once a step.",
        "",
        *_table(CELL_COLUMNS, [cell_row(cell) for cell in report.cells if cell.ratios]),
        "",
        "## Where a step's time goes",
        "",
        "One row, no sampling; build and encode are the host's, device is the device's own while steps queue behind "
        "other work, limit is reading the weights.",
        "",
        *_table(HOST_COLUMNS, host_rows(report)),
        "",
        "## Not run",
        "",
        *(f"- {line}" for line in not_run(report)),
        "",
        "## Parity",
        "",
        *parity_lines(parity),
        "",
        "## Runs",
        "",
    ]
    for run in report.runs:
        versions = ", ".join(f"{name} {version}" for name, version in run["versions"].items())
        lines.append(f"- {run['started']}: `{run['command']}`, source {run['source']}, {versions}")
    return "\n".join([*lines, ""])
