"""The tasks by name: name -> "module:symbol" of a function that makes one."""

from __future__ import annotations

TASKS: dict[str, str] = {
    "bfcl": "evals.tasks.bfcl:Bfcl",
    "gsm8k": "evals.tasks.gsm8k:Gsm8k",
    "gsm8k_chat": "evals.tasks.gsm8k:Gsm8kChat",
    "hashhop": "evals.tasks.hashhop:HashHop",
    "humaneval": "evals.tasks.humaneval:HumanEval",
    "ifeval": "evals.tasks.ifeval:IfEval",
    "mbpp": "evals.tasks.mbpp:Mbpp",
}
