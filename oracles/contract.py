"""The contract between a parent process and a worker that runs one stack in one configuration.

A worker is a child process (`python -m oracles.worker`) that reads one JSON request a line on stdin and answers
one JSON document a line on stdout. Arrays travel as safetensors files in a folder that the parent owns.
Three stacks speak it: "engine" (ours, through the public door), "mlx-lm" and "optiq". The two oracles never share
a process, and one process holds one configuration at a time.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from engine import errors

STACKS = ("engine", "mlx-lm", "optiq")
WANTS = ("logits", "layers")
JUDGES = ("plain", "batch")


@dataclass(frozen=True, kw_only=True)
class StackConfig:
    """One stack in one configuration.

    model: a model folder; "" for a worker that has nothing loaded yet. dtype: "auto" keeps the checkpoint's. kv: the
    engine's notation ("native", "kv8", "kv4:g32", "mixed:<kv_config.json>"); an adapter that cannot honour it refuses
    at load. levers: names and values of the engine's own configuration ("compile", "step"), which nobody else has.
    drive: the engine's, "thread", or "manual": by who asks, as mlx-lm's loops are. sampling: `SamplingParams` fields
    that continuations are drawn with, of the engine; every other probe is greedy or brings its own.
    """

    stack: str
    model: str
    dtype: str = "auto"
    kv: str = "native"
    chunk: int = 2048
    blas: str = "bundled"
    compile: bool = True
    levers: tuple[tuple[str, str], ...] = ()
    drive: str = "thread"
    sampling: tuple[tuple[str, Any], ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "sampling", tuple((str(name), value) for name, value in self.sampling))
        if self.stack not in STACKS:
            raise errors.InvalidValue("stack", self.stack, STACKS)
        if self.blas not in ("bundled", "openblas"):
            raise errors.InvalidValue("blas", self.blas, ("bundled", "openblas"))
        if self.drive not in ("thread", "manual") or (self.drive == "manual" and self.stack != "engine"):
            raise errors.InvalidValue("drive", self.drive, ("thread", "manual, for the engine"))
        if self.levers and self.stack != "engine":
            raise errors.InvalidValue("levers", dict(self.levers), f"none: {self.stack} has not the engine's")
        if self.sampling and self.stack != "engine":
            raise errors.InvalidValue("sampling", dict(self.sampling), f"none: {self.stack} draws no continuations")

    @property
    def process(self) -> tuple[str, str, bool]:
        """What is fixed for the life of a process: the stack (with its KV plan, which optiq installs for good), the
        BLAS and whether MLX fuses."""
        return f"{self.stack} {self.kv}" if self.stack == "optiq" else self.stack, self.blas, self.compile

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True, kw_only=True)
class Probe:
    """Teacher-forced token ids, over a fresh cache.

    The first `head` tokens go in a forward of their own, the last `tail` one at a time, the rest in chunks; `sizes`,
    where given, are the lengths of all consecutive forwards instead, whatever the configuration's chunk. After each
    forward the KV schedule may convert caches, exactly as in generation. The answer's arrays: "logits" [L, V]; with
    want "layers" also "layer.<i>" [L, D], the residual stream after layer i ("layer.-1" is the embedding).

    served: run it as a row of the engine's batch, its `tail` one token at a time; the answer then holds the tail's
    positions alone. beside: other token ids that are rows beside it, which says `served` too. lens: so many last
    positions for which the answer has "lens.<i>" [lens, V] too, the logits that the final norm and the head make of the
    stream after layer i. prefix: so many tokens are filled first, their caches kept and restored into fresh ones, from
    which the run goes on; of rows, by the engine's prefix cache. These four are the engine's alone.
    """

    token_ids: tuple[int, ...]
    head: int = 0
    tail: int = 1
    sizes: tuple[int, ...] | None = None
    want: tuple[str, ...] = ("logits",)
    beside: tuple[tuple[int, ...], ...] = ()
    lens: int = 0
    prefix: int = 0
    served: bool = False

    def __post_init__(self) -> None:
        if not self.token_ids:
            raise errors.EmptyPrompt
        if self.sizes is not None:
            if (self.head, self.tail, self.prefix) != (0, 1, 0):
                raise errors.InvalidValue("head/tail/prefix", (self.head, self.tail, self.prefix), "none beside sizes")
            if any(size < 1 for size in self.sizes) or sum(self.sizes) != len(self.token_ids):
                raise errors.InvalidValue("sizes", self.sizes, f"integers >= 1 with sum {len(self.token_ids)}")
        if not 0 <= self.head < len(self.token_ids):
            raise errors.InvalidValue("head", self.head, f"0..{len(self.token_ids) - 1}")
        if not 1 <= self.tail <= len(self.token_ids) - self.head:
            raise errors.InvalidValue("tail", self.tail, f"1..{len(self.token_ids) - self.head}")
        object.__setattr__(self, "beside", tuple(map(tuple, self.beside)))
        object.__setattr__(self, "served", self.served or bool(self.beside))
        plain = (self.head, self.sizes, self.want, self.lens) == (0, None, ("logits",), 0)
        if self.served and not plain:
            raise errors.InvalidValue("beside", len(self.beside), "rows without head, sizes, layers and lens")
        if not 0 <= self.lens <= len(self.token_ids):
            raise errors.InvalidValue("lens", self.lens, f"0..{len(self.token_ids)}")
        most = 0 if self.head else len(self.token_ids) - self.tail
        if not 0 <= self.prefix <= most:
            raise errors.InvalidValue("prefix", self.prefix, f"0..{most}")
        for want in self.want:
            if want not in WANTS:
                raise errors.InvalidValue("want", want, WANTS)

    def check_common(self) -> None:
        """Raise `InvalidValue` for what the engine alone can do."""
        if self.served:
            raise errors.InvalidValue("beside", len(self.beside), "none: rows beside each other are the engine's")
        if self.lens or self.prefix:
            raise errors.InvalidValue("lens/prefix", (self.lens, self.prefix), "none: both are the engine's")

    def lengths(self, chunk: int) -> tuple[int, ...]:
        """The lengths of the consecutive forwards, prefilled in chunks of `chunk`; of a run without a prefix."""
        if self.sizes is not None:
            return self.sizes
        body = len(self.token_ids) - self.head - self.tail
        chunks = (*[chunk] * (body // chunk), *filter(None, [body % chunk]))
        return (*filter(None, [self.head]), *chunks, *[1] * self.tail)


@dataclass(frozen=True, kw_only=True)
class GenerateProbe:
    """Free-running generation. `sampling` holds `SamplingParams` fields.

    The answer: "tokens" (in the document) and the array "logprobs" [N, V] in the logits' dtype.
    """

    token_ids: tuple[int, ...]
    sampling: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class TimeProbe:
    """One timed sample: prefill `token_ids`, then decode exactly `max_tokens` tokens greedily, ignoring EOS."""

    token_ids: tuple[int, ...]
    max_tokens: int


@dataclass(frozen=True, kw_only=True)
class ForwardProbe:
    """One timed sample of the bare graph, without sampling or scheduling.

    Over a fresh cache `token_ids` go in one forward, then `steps` seeded tokens one at a time; the logits of each
    forward are evaluated before the next one is built. The whole is done `repeats` times; seconds are means over them.
    """

    token_ids: tuple[int, ...]
    steps: int
    repeats: int = 1

    def __post_init__(self) -> None:
        if not self.token_ids:
            raise errors.EmptyPrompt
        for name, value in (("steps", self.steps), ("repeats", self.repeats)):
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise errors.InvalidValue(name, value, "an integer >= 1")


@dataclass(frozen=True, kw_only=True)
class HostProbe:
    """Where the time of a decode step goes, without sampling or scheduling: see `oracles.host_timing`.

    Behind `token_ids`, `steps` seeded tokens are fed one at a time, each waited for, and then a few queued together.
    """

    token_ids: tuple[int, ...]
    steps: int

    def __post_init__(self) -> None:
        if not self.token_ids:
            raise errors.EmptyPrompt
        _check_counts(self, steps=2)


@dataclass(frozen=True, kw_only=True)
class BatchProbe:
    """Greedy rows in one batch: row i arrives before turn `joins[i]` and makes `limits[i]` tokens, EOS or not.

    The answer: "tokens" (of all rows, one behind the other, in the document) and the arrays "row.<i>" [N, V], logprobs
    in the logits' dtype. An oracle whose batch gives a row other bits than its own plain decoding says so in "apart":
    row -> max |diff|, and answers with the latter (`judge` "plain"), or with its batch all the same ("batch").
    """

    rows: tuple[tuple[int, ...], ...]
    joins: tuple[int, ...]
    limits: tuple[int, ...]
    judge: str = "plain"

    def __post_init__(self) -> None:
        object.__setattr__(self, "rows", tuple(tuple(row) for row in self.rows))
        if not self.rows or not all(self.rows):
            raise errors.EmptyPrompt
        if self.judge not in JUDGES:
            raise errors.InvalidValue("judge", self.judge, JUDGES)
        for name, values in (("joins", self.joins), ("limits", self.limits)):
            if len(values) != len(self.rows):
                raise errors.InvalidValue(name, len(values), f"one a row: {len(self.rows)}")

    @property
    def token_ids(self) -> tuple[int, ...]:
        """The prompts behind each other."""
        return tuple(token for row in self.rows for token in row)


@dataclass(frozen=True, kw_only=True)
class CacheProbe:
    """One timed sample of a KV scheme behind a context, without sampling or scheduling.

    `token_ids` fill native caches in chunks, once a process. From copies of those the caches are converted
    `conversions` times; from the last `repeats` of them one token is fed outside the clock, which makes the room that
    a full buffer lacks, and then `steps` seeded tokens one at a time. Seconds are means.
    """

    token_ids: tuple[int, ...]
    steps: int
    repeats: int = 1
    conversions: int = 1

    def __post_init__(self) -> None:
        if not self.token_ids:
            raise errors.EmptyPrompt
        for name in ("steps", "repeats", "conversions"):
            value = self.__dict__[name]
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise errors.InvalidValue(name, value, "an integer >= 1")
        if self.conversions < self.repeats:
            raise errors.InvalidValue("conversions", self.conversions, f"at least as many as repeats: {self.repeats}")


@dataclass(frozen=True, kw_only=True)
class RowsProbe:
    """One timed sample of a batch: all rows arrive at once, and each makes `limit` tokens greedily, ignoring EOS.

    The whole is done `repeats` times; seconds are means over them. One row runs in mlx-lm's plain loop, several in its
    BatchGenerator.
    """

    rows: tuple[tuple[int, ...], ...]
    limit: int
    repeats: int = 1

    def __post_init__(self) -> None:
        object.__setattr__(self, "rows", tuple(tuple(row) for row in self.rows))
        if not self.rows or not all(self.rows):
            raise errors.EmptyPrompt
        # A row's first and last token must lie apart, and all rows must decode together for a while.
        _check_counts(self, limit=len(self.rows) + 1, repeats=1)

    @property
    def token_ids(self) -> tuple[int, ...]:
        """The prompts behind each other."""
        return tuple(token for row in self.rows for token in row)


@dataclass(frozen=True, kw_only=True)
class BusyProbe:
    """One timed sample of arrivals in a busy batch, at seeded moments within a step.

    `rows` decode all the while. `arrivals` times `short` arrives, makes one token and leaves; then `long` does once.
    Between them the rows take `quiet` steps alone. Before all of it `long` runs with nobody beside it, which tells what
    a chunk costs.
    """

    rows: tuple[tuple[int, ...], ...]
    short: tuple[int, ...]
    long: tuple[int, ...]
    arrivals: int
    quiet: int = 8
    seed: int = 0

    def __post_init__(self) -> None:
        object.__setattr__(self, "rows", tuple(tuple(row) for row in self.rows))
        if not self.rows or not all((*self.rows, self.short, self.long)):
            raise errors.EmptyPrompt
        _check_counts(self, arrivals=1, quiet=2, seed=0)

    @property
    def token_ids(self) -> tuple[int, ...]:
        """The prompts behind each other."""
        return tuple(token for row in (*self.rows, self.short, self.long) for token in row)


@dataclass(frozen=True, kw_only=True)
class LoadProbe:
    """One timed sample of requests that come one after the other; each makes `limit` tokens greedily, ignoring EOS.

    Closed loop: `concurrency` are in work at all times, the next one arrives when one has ended. Open loop: request i
    arrives `arrivals_s[i]` seconds after the first, whatever the others do.
    """

    rows: tuple[tuple[int, ...], ...]
    limit: int
    concurrency: int = 0
    arrivals_s: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "rows", tuple(tuple(row) for row in self.rows))
        object.__setattr__(self, "arrivals_s", tuple(self.arrivals_s))
        if not self.rows or not all(self.rows):
            raise errors.EmptyPrompt
        _check_counts(self, limit=2, concurrency=0)
        if bool(self.concurrency) == bool(self.arrivals_s):
            raise errors.InvalidValue("concurrency/arrivals_s", "both or none", "one of the two")
        late = list(self.arrivals_s)
        if late and (len(late) != len(self.rows) or late != sorted(late) or late[0] < 0):
            raise errors.InvalidValue("arrivals_s", late, f"{len(self.rows)} growing seconds, the first >= 0")

    @property
    def token_ids(self) -> tuple[int, ...]:
        """The prompts behind each other."""
        return tuple(token for row in self.rows for token in row)


@dataclass(frozen=True, kw_only=True)
class DrawProbe:
    """`count` continuations of one prompt, drawn side by side as the configuration's `sampling` says, each of `limit`
    tokens, EOS or not. Continuation i has the seed `seed` + i. The answer's document has "drawn", the ids of each."""

    token_ids: tuple[int, ...]
    count: int
    limit: int
    seed: int

    def __post_init__(self) -> None:
        if not self.token_ids:
            raise errors.EmptyPrompt
        _check_counts(self, count=2, limit=2, seed=0)


def _check_counts(probe: object, **least: int) -> None:
    for name, low in least.items():
        value = probe.__dict__[name]
        if isinstance(value, bool) or not isinstance(value, int) or value < low:
            raise errors.InvalidValue(name, value, f"an integer >= {low}")


TimedProbe = TimeProbe | HostProbe | CacheProbe | RowsProbe | BusyProbe | LoadProbe
AnyProbe = Probe | GenerateProbe | ForwardProbe | BatchProbe | DrawProbe | TimedProbe


@dataclass(frozen=True)
class Trace:
    """What a worker answered. `tensors` are MLX arrays; `doc` is JSON.

    doc always has: stack, versions, machine (key), kv_status, caches (one `CacheLayer` dict per layer, read live
    after the run), prompt_tokens. A teacher-forced probe adds kv_live (per position, the scheme that its forward
    attended, read from the live caches just before it ran: "native", "affine8:g64", or "mixed" if layers differ).
    Generation adds tokens and finish_reason; the timed probes add prefill_s, decode_s, ttft_s, decode_tokens,
    peak_bytes, rss_bytes, kv_bytes, and ahead where a loop fed that many tokens beyond what was asked. A cache probe
    adds convert_s (None where the scheme converts nothing) and kv_stepped, the live scheme that the timed steps began
    with; its prefill_s is of the one fill. A batch's adds whole_s, from arrival to the last token of all; arrivals in a
    busy one add ttfts_s, gaps_s, step_s and chunk_s, requests of a load ttfts_s, gaps_s and e2es_s: see
    `oracles.batch_timing`.
    """

    tensors: Mapping[str, Any]
    doc: Mapping[str, Any]


class OracleRefused(errors.FrontierError):
    """The stack cannot do what was asked; the message is its own exception text. A cell then reads "not run".

    kind: the exception's class name in the child ("NotImplementedError", "NotBuilt", "SystemExit", ...).
    """

    def __init__(self, text: str, kind: str = "") -> None:
        self.kind = kind
        super().__init__(text)


class OracleCrashed(errors.FrontierError):
    """The worker process died; the message holds the tail of its stderr."""

    exit_code = 3


class SchemeNotLive(errors.FrontierError):
    """A recording or measurement whose live caches are not of the asked scheme. It is refused."""

    exit_code = 3
