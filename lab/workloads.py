"""Workloads by name: what is asked of an arm in one sample. `lab/conf/workload/*.yaml` holds them, one file each.

A session's token ids are one list; here it becomes prompts and a probe, the same way each time, so that a session that
goes on after its process has died asks the same again.
"""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

import numpy as np
import yaml

from engine import errors
from oracles.contract import DrawProbe, LoadProbe, RowsProbe, TimeProbe

FOLDER = Path(__file__).resolve().parent / "conf" / "workload"
OWN = "own"
KINDS = ("single", "rows", "closed", "open", "drawn")
TOGETHER = ("rows", "closed", "open")  # several rows at once, so that there is a throughput
LEAST_TOKENS = 17  # the first belongs to the prefill, and a row has at least 16 decode steps
ARRIVAL_SEED = 17
WorkloadProbe = TimeProbe | RowsProbe | LoadProbe | DrawProbe


@dataclass
class LoadConf:
    """What one sample asks. prompt_tokens, max_tokens: of the longest row; None keeps the profile's or the
    experiment's.

    kind: "single" one request; "rows" all at once; "closed" `concurrency` at a time, the next when one has ended;
    "open" at seeded moments, `every_s` seconds apart on average; "drawn" `rows` continuations of one prompt, of
    `prompts` that the quads take in turn. shared_tokens: the same at the head of each prompt; shorter: tokens that each
    prompt has less than the one before it.
    """

    name: str = OWN
    about: str = "one request, of the sizes of the profile or of the experiment"
    kind: str = "single"
    prompt_tokens: int | None = None
    max_tokens: int | None = None
    rows: int = 1
    shared_tokens: int = 0
    shorter: int = 0
    concurrency: int = 0
    every_s: float = 0.0
    prompts: int = 1


def names() -> list[str]:
    """The workloads by name."""
    return sorted(path.stem for path in FOLDER.glob("*.yaml"))


def read_workload(name: str, **sizes: int | None) -> tuple[LoadConf, int, int]:
    """(a workload by name, its prompt tokens, its new tokens), sizes of the full profile where it has none of its own;
    `sizes`: other values of its fields, as flags of those names gave them. Raises `UnknownField`, `InvalidValue`."""
    if name not in names():
        raise errors.UnknownField("workload", name, names())
    document = yaml.safe_load((FOLDER / f"{name}.yaml").read_text(encoding="utf-8"))
    load = LoadConf(**document | {key: value for key, value in sizes.items() if value is not None})
    profile = yaml.safe_load((FOLDER.parent / "profile" / "full.yaml").read_text(encoding="utf-8"))
    prompt_tokens, max_tokens = load.prompt_tokens, load.max_tokens
    prompt_tokens = profile["prompt_tokens"] if prompt_tokens is None else prompt_tokens
    max_tokens = profile["max_tokens"] if max_tokens is None else max_tokens
    check_workload(load, prompt_tokens, {size: f"--{size.replace('_', '-')}" for size in sizes})
    return load, prompt_tokens, max_tokens


def check_workload(load: LoadConf, prompt_tokens: int, flags: Mapping[str, str] = MappingProxyType({})) -> None:
    """Raise `InvalidValue` for what cannot be measured. prompt_tokens: of the longest row, as it came out; flags: field
    -> the flag that an error names in its place."""
    if load.kind not in KINDS:
        raise errors.InvalidValue("workload.kind", load.kind, KINDS)
    rows, tokens = (flags.get(name, f"workload.{name}") for name in ("rows", "prompt_tokens"))
    least_rows = 1 if load.kind == "single" else 2
    if load.rows < least_rows:
        raise errors.InvalidValue(rows, load.rows, f"an integer >= {least_rows}, of {load.kind}")
    for name, low in (("shared_tokens", 0), ("shorter", 0), ("prompts", 1)):
        if load.__dict__[name] < low:
            raise errors.InvalidValue(f"workload.{name}", load.__dict__[name], f"an integer >= {low}, of {load.kind}")
    if load.kind == "single" and load.rows != 1:
        raise errors.InvalidValue(rows, load.rows, "1, of single")
    if "rows" in flags and load.concurrency > load.rows:
        raise errors.InvalidValue(rows, load.rows, f"an integer >= {load.concurrency}, the requests at a time")
    if (load.kind == "closed") != (load.concurrency > 0) or load.concurrency > load.rows:
        allowed = f"1..{load.rows}, its requests" if load.kind == "closed" else f"0, of {load.kind}"
        raise errors.InvalidValue("workload.concurrency", load.concurrency, allowed)
    if (load.kind == "open") != (load.every_s > 0):
        allowed = "seconds above 0" if load.kind == "open" else f"0, of {load.kind}"
        raise errors.InvalidValue("workload.every_s", load.every_s, allowed)
    if load.kind != "drawn" and load.prompts != 1:
        raise errors.InvalidValue("workload.prompts", load.prompts, f"1, of {load.kind}")
    shortest = own_tokens(load, prompt_tokens)[-1]
    if shortest < 1:
        allowed = f"more than {prompt_tokens - shortest}, so that each prompt has a token of its own"
        raise errors.InvalidValue(tokens, prompt_tokens, allowed)


def own_tokens(load: LoadConf, prompt_tokens: int) -> list[int]:
    """Tokens of each prompt that no other one has."""
    count = load.prompts if load.kind == "drawn" else load.rows
    return [prompt_tokens - load.shared_tokens - load.shorter * row for row in range(count)]


def tokens_of_session(load: LoadConf, prompt_tokens: int) -> int:
    """How many token ids a session needs."""
    return load.shared_tokens + sum(own_tokens(load, prompt_tokens))


def tokens_of_sample(load: LoadConf, prompt_tokens: int) -> int:
    """Prompt tokens that one sample feeds."""
    if load.kind == "drawn":
        return load.rows * prompt_tokens
    return sum(load.shared_tokens + own for own in own_tokens(load, prompt_tokens))


def prompts_of(load: LoadConf, prompt_tokens: int, token_ids: Sequence[int]) -> list[tuple[int, ...]]:
    """The prompts: the shared head, then each one's own. Raises `InvalidValue` for another number of ids."""
    need = tokens_of_session(load, prompt_tokens)
    if len(token_ids) != need:
        raise errors.InvalidValue("token ids of a session", len(token_ids), str(need))
    ends = itertools.accumulate(own_tokens(load, prompt_tokens), initial=load.shared_tokens)
    head = tuple(token_ids[: load.shared_tokens])
    return [head + tuple(token_ids[begin:end]) for begin, end in itertools.pairwise(ends)]


def arrivals_s(load: LoadConf) -> tuple[float, ...]:
    """When each request of an open loop comes: gaps of an exponential law, the same in every sample."""
    draws = np.random.Generator(np.random.PCG64(ARRIVAL_SEED)).random(load.rows - 1)
    gaps = [-load.every_s * float(np.log1p(-draw)) for draw in draws]
    return tuple(itertools.accumulate(gaps, initial=0.0))


def probe_of(load: LoadConf, prompt_tokens: int, max_tokens: int, token_ids: Sequence[int]) -> WorkloadProbe:
    """What each sample of a session asks; `drawn` ones are given a prompt and a seed of their own by `for_sample`."""
    prompts = prompts_of(load, prompt_tokens, token_ids)
    rows = tuple(prompts)
    if load.kind == "rows":
        return RowsProbe(rows=rows, limit=max_tokens)
    if load.kind == "closed":
        return LoadProbe(rows=rows, limit=max_tokens, concurrency=load.concurrency)
    if load.kind == "open":
        return LoadProbe(rows=rows, limit=max_tokens, arrivals_s=arrivals_s(load))
    if load.kind == "drawn":
        return DrawProbe(token_ids=prompts[0], count=load.rows, limit=max_tokens, seed=0)
    return TimeProbe(token_ids=prompts[0], max_tokens=max_tokens)


def draw_seed(seed: int, block: int, position: int, attempt: int) -> int:
    """The first seed of one sample's continuations; no two samples of a part share one."""
    text = "\n".join(map(str, (seed, block, position, attempt)))
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:7], "big")


def for_sample(
    prompts: Sequence[tuple[int, ...]], probe: DrawProbe, seed: int, block: int, position: int, attempt: int
) -> DrawProbe:
    """The continuations of one sample: the prompt of its quad, and seeds of its own."""
    seed = draw_seed(seed, block, position, attempt)
    return DrawProbe(token_ids=prompts[max(block, 0) % len(prompts)], count=probe.count, limit=probe.limit, seed=seed)


def sizes_words(load: LoadConf, prompt_tokens: int, max_tokens: int) -> str:
    """`8 rows of 288 + 48 tokens, 256 shared`."""
    longest = f"{prompt_tokens} + {max_tokens} tokens"
    if load.kind == "single":
        return longest
    what = {"rows": "rows", "closed": "requests", "open": "requests", "drawn": "continuations"}[load.kind]
    words = [f"{load.rows} {what} of {longest}"]
    if load.shared_tokens:
        words.append(f"{load.shared_tokens} shared")
    if load.shorter:
        words.append(f"each prompt {load.shorter} shorter than the one before")
    if load.concurrency:
        words.append(f"{load.concurrency} at a time")
    if load.every_s:
        words.append(f"one in {load.every_s:g} s on average")
    if load.kind == "drawn":
        words.append(f"{load.prompts} prompts in turn")
    return ", ".join(words)
