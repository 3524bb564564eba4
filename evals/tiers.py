"""How many items of which task a tier runs. None: all of them. Always the first ones, in the task's own order.

smoke: minutes on two cores, a check that nothing is broken; nightly: enough for margins of some points; full: whatever
the data has, for a machine with an accelerator. Synthetic tasks and HashHop are cheap or long by choice of size, so
their numbers are multiples of it. smoke has the forms of IFEval and BFCL that cut an answer at 256 tokens, and the
short texts of HashHop.
"""

from __future__ import annotations

TIERS: dict[str, dict[str, int | None]] = {
    "smoke": {
        "arc_easy": 50,
        "arc_challenge": 25,
        "hellaswag": 30,
        "lambada": 40,
        "mmlu_0shot": 57,
        "gsm8k": 8,
        "ifeval_256": 8,
        "humaneval": 8,
        "bfcl_256": 8,
        "hashhop_1k": 4,
        "synthetic_copy": 24,
        "synthetic_arithmetic": 24,
        "synthetic_retrieval": 24,
    },
    "nightly": {
        "arc_easy": 200,
        "arc_challenge": 200,
        "hellaswag": 200,
        "lambada": 200,
        "mmlu": 228,
        "mmlu_0shot": 228,
        "gsm8k": 200,
        "gsm8k_chat": 200,
        "ifeval": 200,
        "humaneval": None,
        "mbpp": 200,
        "bfcl": 200,
        "hashhop": 112,
        "synthetic_copy": None,
        "synthetic_arithmetic": None,
        "synthetic_retrieval": None,
    },
    "full": {
        "arc_easy": None,
        "arc_challenge": None,
        "hellaswag": None,
        "lambada": None,
        "mmlu": None,
        "mmlu_0shot": None,
        "gsm8k": None,
        "gsm8k_chat": None,
        "ifeval": None,
        "humaneval": None,
        "mbpp": None,
        "bfcl": None,
        "hashhop": None,
        "synthetic_copy": None,
        "synthetic_arithmetic": None,
        "synthetic_retrieval": None,
    },
}
