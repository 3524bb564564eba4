"""The sentences of the scorecard; each is computed, and claims no more than its interval does."""

from __future__ import annotations

from collections.abc import Sequence

from lab.frontier import AXES, NEW_FRONTIER_P
from lab.metrics import TOO_WIDE, metric, show
from lab.recipes import DEFAULT, REFERENCE
from lab.scorecard.card import Cell, ModelCard, Row, Scorecard


def compare(cell: Cell, faster: str, slower: str, subject: str) -> str:
    """A ratio in words."""
    e = cell.estimate
    if e is None:
        return f"{subject}: no number, {cell.reasons[0]}"
    if e.low is None or e.high is None:
        return f"{subject}: no interval, so nothing is claimed"
    ends = f"{e.low:.2f} to {e.high:.2f}"
    if e.high / e.low > TOO_WIDE:
        ends = f"wider than ×{TOO_WIDE:.0f}: the machine was too busy"
    span = f"{e.value:.2f}× (95 % interval {ends})"
    if cell.state != "stable":
        return f"{subject}: {span}, unstable, so nothing is claimed"
    if e.low > 1:
        return f"{subject}: {faster}, {span}"
    if e.high < 1:
        return f"{subject}: {slower}, {span}"
    return f"{subject}: no difference shown, {span}"


def headline(card: ModelCard) -> str:
    """What decode speed against the reference shows, on the recipe both share."""
    row, stack = card.row(DEFAULT.name), REFERENCE.stack
    if row is None:
        return f"{DEFAULT.name} is not among the measured recipes"
    if row.why_not:
        return f"The engine's native recipe did not run: {row.why_not}"
    cell = row.cell("decode_ratio")
    e = cell.estimate
    if e is None:
        return f"The engine decodes, and nothing was measured to compare it with: {cell.reasons[0]}"
    if e.low is None or e.high is None:
        return f"The engine decodes at {e.value:.2f}× {stack}; with one {card.unit} there is no interval"
    if e.high / e.low > TOO_WIDE:
        return f"Too noisy a run to compare the engine’s speed with {stack}"
    if e.low <= 1 <= e.high:
        return f"No difference shown in decode speed between the engine and {stack}"
    claim = f"he engine decodes {e.value:.2f}× as fast as {stack}"
    if cell.state != "stable":
        return f"Unstable here, no verdict: t{claim}"
    return f"T{claim}" if decides(card, row) else f"Screened, not decided: t{claim}"


def decides(card: ModelCard, row: Row) -> bool:
    """Whether a recipe's speed may carry a verdict: stable, whole profile, on a machine of one's own."""
    return row.cell("decode_tok_s").state == "stable" and not card.quick and card.newest.limits.name != "shared"


def page_headline(card: Scorecard) -> str:
    """Of the first model; of a machine without one, that."""
    if card.models:
        return headline(card.models[0])
    return "No recipe is measured on this machine yet"


def findings(card: ModelCard) -> list[str]:
    """The lines under the headline."""
    native, lines = card.row(DEFAULT.name), []
    if native is not None and not native.why_not:
        against = f"engine against {REFERENCE.stack}"
        lines.append(compare(native.cell("decode_ratio"), "faster", "slower", f"Decode, {against}"))
        lines.append(compare(native.cell("prefill_ratio"), "faster", "slower", f"Prefill, {against}"))
        base = native.cell("kv_bytes").value
        for kv in ("kv8", "kv4"):
            row = card.row(f"engine {kv}")
            own, kl = (row.cell("kv_bytes").value, row.cell("kl_nats").value) if row else (None, None)
            if base and own and kl is not None:
                saved = 100 * (1 - own / base)
                lines.append(f"{kv} makes the KV cache {saved:.0f} % smaller for {show('kl_nats', kl)} nats")
    likely = [row for row in card.measured if (row.p_frontier or 0) >= NEW_FRONTIER_P]
    if likely:
        firm = all(decides(card, row) for row in likely)
        names = ", ".join(row.name for row in likely)
        claim = f"n the frontier with probability {NEW_FRONTIER_P} or more: {names}"
        lines.append(f"O{claim}" if firm else f"Screened, not decided: o{claim}")
    grey = [row.name for row in card.measured if row.cell("decode_tok_s").state == "unstable"]
    if grey:
        which = "every recipe" if len(grey) == len(card.measured) else ", ".join(grey)
        lines.append(f"The speed of {which} is unstable here: grey, with its reasons, and no verdict rests on it")
    return lines


def axes_words() -> str:
    return ", ".join(f"{metric(axis.name).label} ({metric(axis.name).better} is better)" for axis in AXES)


def eps_words(card: ModelCard) -> str:
    """The widest margin that was used on each axis."""
    if card.frontier is None:
        return card.no_frontier
    parts = []
    for axis in AXES:
        eps = card.frontier.eps[axis.name]
        size = f"{100 * eps:.1f} %" if axis.ratio else f"{eps:.1e} nats"
        parts.append(f"{metric(axis.name).label} {'unbounded' if axis.ratio and eps > 100 else size}")
    return ", ".join(parts)


def floor_words(card: ModelCard) -> str:
    """The machine's limits and the workload's least time; what was not measured is said."""
    if card.ceilings is None:
        return "The machine's ceilings were not measured in these runs."
    c = card.ceilings
    said = f"Measured just before the samples, with the same BLAS ({c.blas}): read {c.read_gb_s:.1f} GB/s, "
    said += f"copy {c.copy_gb_s:.1f} GB/s, fp32 products {c.fp32_gflop_s:.1f} GFLOP/s."
    f = card.floor
    if f is None:
        return f"{said} The floor of a step is not known: {REFERENCE.name} did not run."
    said += f" A decode step of {REFERENCE.name} must read {f.decode_bytes / 1e6:.0f} MB and do "
    said += (
        f"{f.decode_flops / 1e9:.2f} GFLOP, so the limit is {1 / f.decode_s:.1f} tok/s (bound by {f.decode_bound}); "
    )
    return said + f"the limit of prefill is {1 / f.prefill_token_s:.0f} tok/s (bound by {f.prefill_bound})."


def aa_words(card: ModelCard) -> str:
    """What the reference against itself said."""
    e = card.aa.estimate
    if e is None:
        return f"A/A: {card.aa.reasons[0]}."
    ends = "no interval" if e.low is None or e.high is None else f"{e.low:.3f} to {e.high:.3f}"
    return f"A/A, {REFERENCE.name} against itself: {e.value:.3f} ({ends}), {card.units} {card.unit}s."


def inherited(card: ModelCard) -> list[str]:
    """Which recipes take over another's quality, and why they may."""
    return [
        f"{row.name} takes over the numbers of {row.same_bits_as}: equal bits at all {row.checked} checked positions."
        for row in card.measured
        if row.same_bits_as
    ]


def sizes_words(card: ModelCard) -> str:
    p = card.profile
    return (
        f"profile {p.name}: {card.units} {card.unit}s, {p.prompt_tokens} + {p.decode_tokens} tokens a sample, "
        f"KL on {p.kl_sequences} × {p.kl_length}"
    )


def parity_words(card: Scorecard) -> tuple[str, bool]:
    """(all suites in one line, whether none is faulty)."""
    run = [suite for suite in card.suites if suite.equal is not None]
    faulty = [suite.name for suite in run if suite.faulty]
    if faulty:
        return f"faulty cells in {', '.join(faulty)}", False
    if not run:
        return "no suite was run on this kind of machine", True
    cells = sum(suite.equal or 0 for suite in run)
    return f"{cells:,} cells equal, none faulty, in {len(run)} of {len(card.suites)} suites", True


def experiment_words(card: Scorecard) -> str:
    """How many experiments are open, and how many are decided."""
    still = sum(e.open for e in card.experiments)
    return f"{still} open, {len(card.experiments) - still} decided"


def all_notes(card: ModelCard) -> Sequence[str]:
    """Notes of the runs, and what is not shown."""
    return (*card.notes, *(f"Left out: {why}" for why in card.left_out))


def zoo_words(card: Scorecard) -> tuple[str, bool]:
    """(how many models of the zoo were checked, whether every claim of them holds)."""
    untrue = [model.name for model in card.zoo if model.untrue]
    if untrue:
        return f"claims that do not hold of {', '.join(untrue)}", False
    below = sum(bool(model.measured["below"]) for model in card.zoo)
    some = f", {below} of them below a bar" if below else ""
    return f"{len(card.zoo)} models{some}, every claim holds", True
