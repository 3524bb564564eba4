"""Records A/A quads of this machine for `test_real_traces`: `python tests/lab/record_quads.py OUT.json [TOKENS]`.

The plan, the order of samples and the relaunches are the lab's own (`lab.design`, `lab.measure`), the base stands on
both sides, and nothing is left out: 16 quads as an A/A, 16 as an A/B of equal arms.
"""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from pathlib import Path

from lab import sensors
from lab.clock import SteadyClock
from lab.design import make_plan, session_seed
from lab.measure import Bench, Sample
from lab.run import start_worker
from oracles.contract import StackConfig, TimeProbe

MODEL = Path(__file__).resolve().parents[1] / "zoo" / "llama-3m"
PARTS = (("aa", 16), ("ab", 16))
PROMPT_TOKENS, MAX_TOKENS = 64, 97
# What a verdict reads of a sample; the rest is the same in all of them, or of no use.
KEPT = ("launch", "block", "position", "role", "order", "warm_up", "pid", "process_started", "t0", "t1")
KEPT += ("decode_tok_s", "prefill_tok_s", "ttft_ms", "steal", "load1")


def seed_of(part: str) -> int:
    """The seed of a part's coins."""
    return session_seed("recorded quads", "1", part)


def main(out: str, max_tokens: int = MAX_TOKENS) -> None:
    arm = StackConfig(stack="engine", model=str(MODEL), dtype="float32", blas="bundled")
    taken: list[Sample] = []
    bench = Bench(
        arms={"base": arm, "candidate": arm},
        probe=TimeProbe(token_ids=tuple(range(3, 3 + PROMPT_TOKENS)), max_tokens=max_tokens),
        start=start_worker,
        record=taken.append,
        tick=print,
        inspect=lambda _role, _trace: None,
        read_sensors=sensors.read,
        clock=SteadyClock(),
    )
    document: dict[str, object] = {"max_tokens": max_tokens, "prompt_tokens": PROMPT_TOKENS, "columns": list(KEPT)}
    for part, quads in PARTS:
        taken.clear()
        bench.part("aa" if part == "aa" else "ab", make_plan(seed_of(part), quads, 2), discard=1)
        rows = [[asdict(sample)[name] for name in KEPT] for sample in taken]
        document[part] = [[round(v, 4) if isinstance(v, float) else v for v in row] for row in rows]
        Path(out).write_text(json.dumps(document), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1], *map(int, sys.argv[2:]))
