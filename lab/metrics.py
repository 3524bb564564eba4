"""The one metric table: name -> unit, direction, how it is printed.

Every table, page, figure and CSV column takes its label, unit and rounding from here.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from engine import errors

Direction = Literal["higher", "lower", "none"]

# What an experiment may be judged by. COUNTED do not depend on the clock and compare exactly; DRAWN depend on seeds,
# not on the clock; TOGETHER exist where several rows run at once.
TIMED = ("decode_tok_s", "prefill_tok_s", "ttft_ms")
TOGETHER = ("agg_tok_s",)
COUNTED = ("peak_bytes", "kv_bytes")
DRAWN = ("self_bleu",)

# Past this ratio of its ends an interval says only that the machine was too busy, and its digits say nothing.
TOO_WIDE = 10.0


def _mib(value: float) -> str:
    return f"{value / 2**20:,.1f} MiB"


def _significant(value: float) -> str:
    """Three significant figures without an exponent down to 1e-3."""
    if value == 0:
        return "0"
    if abs(value) < 1e-3:
        return f"{value:.1e}"
    return f"{value:.3g}" if abs(value) < 1000 else f"{value:,.0f}"


def _fixed(digits: int) -> Callable[[float], str]:
    return lambda value: f"{value:,.{digits}f}"


@dataclass(frozen=True)
class Metric:
    """`better`: which way is good; `counted`: the same in every run, so that no interval is drawn."""

    name: str
    label: str
    unit: str
    better: Direction
    show: Callable[[float], str]
    counted: bool = False
    about: str = ""


_ROWS = (
    Metric("decode_tok_s", "decode", "tok/s", "higher", _fixed(2), about="tokens after the first, over their time"),
    Metric(
        "prefill_tok_s", "prefill", "tok/s", "higher", _fixed(1), about="prompt tokens over the time of the prefill"
    ),
    Metric("agg_tok_s", "throughput", "tok/s", "higher", _fixed(1), about="all rows together, at a stated concurrency"),
    Metric("ttft_ms", "TTFT", "ms", "lower", _fixed(0), about="submission to first token"),
    Metric("tpot_ms", "TPOT", "ms", "lower", _fixed(1), about="time per output token, the first one apart"),
    Metric("itl_ms", "ITL", "ms", "lower", _fixed(1), about="time between two tokens"),
    Metric("load_s", "load", "s", "lower", _fixed(2), about="process start to a loaded model"),
    Metric("peak_bytes", "peak memory", "bytes", "lower", _mib, True, "the allocator's peak, at the stated context"),
    Metric("rss_bytes", "RSS", "bytes", "lower", _mib, about="resident set of the process after the sample"),
    Metric("kv_bytes", "KV cache", "bytes", "lower", _mib, True, "live caches at the stated context, slack counted"),
    Metric(
        "kv_token_bytes", "KV per token", "bytes", "lower", _fixed(0), True, "kv_bytes over the tokens of the context"
    ),
    Metric("convert_ms", "KV conversion", "ms", "lower", _fixed(2), about="a filled native cache to its scheme"),
    Metric("artifact_bytes", "artifact", "bytes", "lower", _mib, True, "every model*.safetensors of the folder"),
    Metric("bpw", "bits per weight", "bits", "lower", _fixed(2), True, "tensor bytes x 8 / logical weights"),
    Metric("perplexity", "perplexity", "", "lower", _significant, about="teacher-forced, over the scored positions"),
    Metric("kl_nats", "KL", "nats", "lower", _significant, about="KL(reference || recipe), mean over scored positions"),
    Metric("top1_agreement", "same top-1", "", "higher", _fixed(4), about="share of positions with the same argmax"),
    Metric("p_frontier", "P(frontier)", "", "higher", _fixed(2), about="share of 2,000 bootstraps on the frontier"),
    Metric("self_bleu", "self-BLEU", "", "lower", _significant, about="how alike continuations of one prompt are"),
    Metric("copy_gb_s", "copy bandwidth", "GB/s", "higher", _fixed(1), about="bytes read plus bytes written"),
    Metric("read_gb_s", "read bandwidth", "GB/s", "higher", _fixed(1)),
    Metric("fp32_gflop_s", "fp32 products", "GFLOP/s", "higher", _fixed(1), about="square products in the BLAS asked"),
)

METRICS: dict[str, Metric] = {row.name: row for row in _ROWS}


def metric(name: str) -> Metric:
    """Look a metric up; an unknown name raises `UnknownField` and lists the known ones."""
    if name not in METRICS:
        raise errors.UnknownField("metrics", name, METRICS)
    return METRICS[name]


def show(name: str, value: float | None) -> str:
    """`value` as printed, without its unit unless the format carries one; None prints a dash."""
    return "–" if value is None else metric(name).show(value)


def show_interval(name: str, low: float | None, high: float | None) -> str:
    """`low`..`high` in the metric's format, or the reason why there is none."""
    if metric(name).counted:
        return "counted"
    if low is None or high is None:
        return "no interval (n < 2)"
    if low > 0 and high / low > TOO_WIDE:
        return f"interval wider than ×{TOO_WIDE:.0f}"
    return f"{show(name, low)} to {show(name, high)}"
