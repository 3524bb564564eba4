"""What `frontier kl` prints of its results."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from rich.table import Table

from evals.bootstrap import Interval
from evals.fidelity import FidelityResult
from evals.free_running import FreeRunning
from evals.layers import steps
from evals.llama_cpp import Estimate
from evals.report import FLIP_GAP_NATS
from lab.metrics import show

COLUMNS = ("candidate", "live", "bytes/token", "mean", "95 % interval", "p99.9", "top-1", "ln PPL ratio", "scored")


def summary(results: Sequence[FidelityResult]) -> Table:
    """One line a candidate."""
    first = results[0]
    warm = f", {first.reference_warm} of them out of a kept state" if first.reference_warm else ""
    table = Table(
        title=f"KL(ref || candidate) in nats; reference {first.reference.stack} {first.reference.kv}, "
        f"{show('kv_token_bytes', first.reference_token_bytes)} KV bytes per token at {first.plan.length} tokens{warm}",
        box=None,
        pad_edge=False,
    )
    for column in COLUMNS:
        table.add_column(column, no_wrap=column != "candidate", overflow="fold")
    for result in results:
        report = result.report
        table.add_row(
            result.candidate.kv,
            result.candidate_live,
            show("kv_token_bytes", result.candidate_token_bytes),
            f"{report.kl.value:.3g}",
            span(report.kl),
            f"{report.kl_p999:.3g}",
            f"{100 * report.top1.value:.1f} %",
            f"{report.ln_ppl_ratio.value:+.4f}",
            f"{report.counted}/{report.total}",
        )
    return table


def layer_table(result: FidelityResult) -> Table:
    """One line a layer: the relative error of the residual stream, what the layer adds to it, and the lens' KL.

    Without `result.layers` there is nothing to show: `IndexError`.
    """
    lens = result.layers[0].lens_kl is not None
    domains = list(result.layers[0].error_by_domain)
    table = Table(title=f"{result.lever}: relative error after each layer", box=None, pad_edge=False)
    for name in ("layer", "error", "95 % interval", "step", *(("lens KL", "95 % interval ") if lens else ()), *domains):
        table.add_column(name, no_wrap=True)
    for layer, step in zip(result.layers, steps(result.layers), strict=True):
        row = [layer.name, f"{layer.error.value:.3g}", span(layer.error), f"{step:+.2g}"]
        if layer.lens_kl is not None:
            row += [f"{layer.lens_kl.value:.3g}", span(layer.lens_kl)]
        table.add_row(*row, *(f"{layer.error_by_domain[name].value:.3g}" for name in domains))
    return table


def largest_step(result: FidelityResult) -> str:
    """Where most of the error enters."""
    found = steps(result.layers)
    at = max(range(len(found)), key=found.__getitem__)
    if found[at] <= 0:
        return "  no layer adds an error"
    end = result.layers[-1].error.value
    return f"  largest step: layer {result.layers[at].name}, {found[at]:+.3g}; {end:.3g} at the end"


def span(interval: Interval) -> str:
    """Its ends, or why there are none."""
    if interval.low is None or interval.high is None:
        return "none: one sequence"
    return f"{interval.low:.3g} to {interval.high:.3g}"


def details(result: FidelityResult) -> str:
    """What does not fit into the table, as one paragraph."""
    report, theirs = result.report, result.report.llama_cpp
    domains = ", ".join(f"{name} {value.value:.3g}" for name, value in result.kl_by_domain.items())
    gap = "" if report.flip_gap_max is None else f", the largest gap {report.flip_gap_max:.2f}"
    correlation = "" if theirs.correlation is None else f", correlation {100 * theirs.correlation:.2f} %"
    return (
        f"{result.lever}:\n"
        f"  KL median {report.kl_median:.3g}, p95 {report.kl_p95:.3g}, p99 {report.kl_p99:.3g}, "
        f"max {report.kl_max:.3g}, reverse {report.reverse_kl.value:.3g}; by domain: {domains}\n"
        f"  top-1 changes {report.top1_changes}, at a reference gap over {FLIP_GAP_NATS} nat {report.flips}{gap}; "
        f"top-5 overlap {100 * report.top5_overlap:.1f} %, top-20 {100 * report.top20_overlap:.1f} %\n"
        f"  next token: delta-p mean {100 * report.delta_p_mean:+.3f} %, RMS {100 * report.delta_p_rms:.3f} %; "
        f"perplexity {report.reference_perplexity.value:.4g} -> {report.candidate_perplexity.value:.4g}\n"
        f"  with llama.cpp's errors (tokens independent): KLD {_error(theirs.kld)}, "
        f"ln PPL ratio {_error(theirs.ln_ppl_ratio)}{correlation}, same top p {_error(theirs.same_top)}\n"
        f"  KV cache {result.reference_kv_bytes:,} -> {result.candidate_kv_bytes:,} bytes "
        f"at {result.plan.length} tokens"
    )


def worst(result: FidelityResult, decode: Callable[[Sequence[int]], str]) -> str:
    """The positions of the largest KL, with the text before them and the token that follows."""
    lines = [
        f"    {place.kl:.3g} in text {place.sequence} at {place.position}: "
        f"{decode(place.context[:-1])!r} -> {decode(place.context[-1:])!r}"
        for place in result.worst
    ]
    return "\n".join(["  largest KL:", *lines])


def parting(free: FreeRunning) -> str:
    """Where greedy generations of the texts part from the reference's."""
    median = "and less than half part" if free.median is None else f"half part by token {free.median}"
    low, high = free.equal_interval or (None, None)
    ends = "" if low is None or high is None else f" ({100 * low:.0f} to {100 * high:.0f} %)"
    text = f"  free running, {free.steps} tokens: {100 * free.equal:.0f} %{ends} of the texts stay equal, {median}"
    if not free.gaps:
        return text
    lead = f"middle {free.gaps[len(free.gaps) // 2]:.3g}, largest {free.gaps[-1]:.3g} nats"
    return f"{text}; the reference's lead where they part: {lead}"


def _error(estimate: Estimate) -> str:
    return f"{estimate.value:.3g}" + ("" if estimate.error is None else f" +- {estimate.error:.2g}")
