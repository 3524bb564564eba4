"""The tasks by name: name -> "module:symbol" of a function that makes one."""

from __future__ import annotations

TASKS: dict[str, str] = {}
