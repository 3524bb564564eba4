"""The prefix cache of an engine in one line."""

from __future__ import annotations

from engine import PrefixStatus
from lab.console import size


def prefix_line(status: PrefixStatus) -> str:
    """What it saved, what it holds, and what it could not keep and why."""
    saved = f"{status.cached_tokens} of {status.prompt_tokens} prompt tokens ({100 * status.hit_rate:.0f} %)"
    line = f"prefix cache: {status.hits} of {status.requests} requests found one, {saved} were not computed"
    line += f"; holds {size(status.held_bytes)} of {size(status.capacity_bytes)} at {status.boundaries} boundaries"
    reasons = [f"{status.evicted} evicted"] if status.evicted else []
    reasons += [f"{count} not kept: {why}" for why, count in status.not_kept.items()]
    return "; ".join([line, *reasons])
