"""The peak memory of a long request, from short pieces of it.

Weights and caches are known exactly. What a forward needs besides is measured where it is cheap and carried on along
the laws that it follows: a chunk of c tokens that ends at token S takes c * (a + b * S) bytes (its activations, and
the scores of its attention), one token a + b * S. Pieces run over caches of zeros (`Engine.rehearse`), and none is the
request itself: it ends at half of the tokens, or is half of a chunk.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from engine import Engine, SamplingParams, parse_kv

DECODED = 64
# MLX runs ahead of itself on the CPU, and how far moves a peak, by percents where operations are short: a piece is run
# until the two highest peaks agree.
REPEATS, MOST_REPEATS, AGREE = 2, 8, 0.01
# Growth of a buffer by a step is part of what a decoded token takes.
STEP = 256
MOST_TOKENS = 1 << 24
# A prompt of fewer tokens has no pieces.
SHORTEST = 4
SEED = 11
VOCABULARY = 64  # of what is really run: ids that every model has


@dataclass(frozen=True)
class Line:
    """y = start + slope * x."""

    start: float
    slope: float

    @classmethod
    def through(cls, first: tuple[int, float], second: tuple[int, float]) -> Line:
        """Through two points (x, y); level where they have one x."""
        (x1, y1), (x2, y2) = first, second
        slope = (y2 - y1) / (x2 - x1) if x1 != x2 else 0.0
        return cls(y1 - slope * x1, slope)

    def __call__(self, x: float) -> float:
        return self.start + self.slope * x


@dataclass(frozen=True, kw_only=True)
class Moment:
    """One time at which a run may peak: when `tokens` are in the caches, which then take `kv_bytes`."""

    name: str
    tokens: int
    kv_bytes: int
    transient_bytes: int
    peak_bytes: int


@dataclass(frozen=True, kw_only=True)
class Fit:
    """What a request of `context` tokens, the last of them decoded, takes at its peak. growing_bytes: the part of the
    peak's transients that grows with the context."""

    context: int
    kv: str
    chunk: int
    weights_bytes: int
    kv_bytes: int
    growing_bytes: int
    moments: tuple[Moment, ...]

    @property
    def peak(self) -> Moment:
        return max(self.moments, key=lambda moment: moment.peak_bytes)

    def as_dict(self) -> dict[str, Any]:
        return {**asdict(self), "peak_bytes": self.peak.peak_bytes, "peak_at": self.peak.name}


def split_context(context: int) -> tuple[int, int]:
    """Prompt tokens and decoded tokens of a context."""
    decoded = min(DECODED, max(context - 1, 1))
    return max(context - decoded, 1), decoded


class Forecast:
    """The laws of one loaded model under one scheme and chunk, measured for contexts near `context`.

    first: bytes a token of the first chunk, by its length; later: a token of any other, by where it ends, for each
    phase of the growth of buffers that matters; decode: of
    one token, by where it stands. conversion: the moment at which a scheme with a start begins, None without.
    """

    def __init__(self, engine: Engine, context: int) -> None:
        self.engine, self.chunk = engine, engine.config.prefill_chunk
        end = split_context(context)[0] - 1
        start = parse_kv(engine.config.kv).start
        longest = min(self.chunk, end)
        # A buffer grows in some chunks and not in others where steps hold several; every chunk that grows is alike.
        self.period = STEP if STEP % self.chunk == 0 else self.chunk
        self.first, self.later = Line(0.0, 0.0), {0: Line(0.0, 0.0)}
        if longest >= SHORTEST:
            few = (longest // 2, longest) if 4 * longest <= end else (longest // 4, longest // 2)
            self.first = Line.through(*((c, self._piece(0, c) / c) for c in few))
        if end > self.chunk:
            self.later = self._later(end, start)
        far = end // 2 // STEP * STEP or end // 2
        # Where a whole step lies before it too; at position 0 the caches have yet to be converted.
        near = far // 2 // STEP * STEP or far
        self.decode = Line.through(*((held, self._step(held)) for held in (near, far)))
        self.conversion: Moment | None = None
        if self.chunk < start <= end:
            tokens = min(-(-start // self.chunk) * self.chunk, end)
            self.conversion = self._moment("conversion", tokens, self._piece(tokens - self.chunk, self.chunk))

    def _later(self, end: int, start: int) -> dict[int, Line]:
        half, whole = end // 2, end // self.chunk * self.chunk
        least = max(2 * self.chunk, max(self._window(end), start) + self.chunk)  # rings are full, the scheme has begun
        lines = {}
        for phase in {whole % self.period, (whole - self.chunk) % self.period}:
            near = least + (phase - least) % self.period
            far = max(half - (half - phase) % self.period, near + self.period)
            tokens = self.chunk
            if far > half + self.period:  # a short context: half the chunk, at its end
                tokens = max(self.chunk // 2, 1)
                near, far = (end + tokens) // 2, end
            lines[phase] = Line.through(*((at, self._piece(at - tokens, tokens) / tokens) for at in (near, far)))
        return lines

    def _line(self, at: int) -> Line:
        """The law of a chunk that ends at `at`: its phase's, or the dearest where that was not measured."""
        return self.later.get(at % self.period) or max(self.later.values(), key=lambda line: line(at))

    def _window(self, end: int) -> int:
        """The largest ring or chunk of a cache that `end` tokens fill."""
        layouts = [layer.layout.partition(":") for layer in self.engine.project(end, 0).per_layer]
        sizes = [int(size) for kind, _, size in layouts if kind in ("rotating", "chunked")]
        return max((size for size in sizes if size <= end), default=0)

    def _piece(self, held: int, tokens: int) -> int:
        """Transient bytes of a chunk behind `held` tokens."""
        return self._measured(held, tokens + 1, 0)

    def _step(self, held: int) -> int:
        """Transient bytes of single tokens."""
        return self._measured(held, 1, 3)

    def _measured(self, held: int, prompt: int, new: int) -> int:
        peaks: list[int] = []
        while len(peaks) < REPEATS or (len(peaks) < MOST_REPEATS and max(peaks) > (1 + AGREE) * sorted(peaks)[-2]):
            run = self.engine.rehearse(held, prompt, new)
            peaks.append(run.peak_bytes - run.kv_bytes - self.engine.weights_bytes)
        return max(peaks)

    def _moment(self, name: str, tokens: int, transient: float) -> Moment:
        kv = self.engine.project(tokens + 1, 0).kv_bytes
        return self._sum(name, tokens, kv, transient)

    def _sum(self, name: str, tokens: int, kv_bytes: int, transient: float) -> Moment:
        peak = self.engine.weights_bytes + kv_bytes + round(transient)
        return Moment(name=name, tokens=tokens, kv_bytes=kv_bytes, transient_bytes=round(transient), peak_bytes=peak)

    def at(self, context: int) -> Fit:
        """The prediction for a context."""
        prompt, decoded = split_context(context)
        end, kv = prompt - 1, self.engine.project(prompt, decoded).kv_bytes
        whole, rest = divmod(end, self.chunk)
        moments = [self._sum("decoding", context, kv, self.decode(context))]
        growing = [self.decode.slope * context]
        longest = min(self.chunk, end)
        if longest:
            moments.append(self._moment("first chunk", longest, longest * self.first(longest)))
            growing.append(self.first.slope * longest * longest)
        chunks = [("last whole chunk", self.chunk, end - rest)] if whole > 1 else []
        if whole > 2 and self.period > self.chunk:
            chunks.append(("chunk before it", self.chunk, end - rest - self.chunk))
        if whole and rest:
            chunks.append(("rest of the prompt", rest, end))
        for name, tokens, at in chunks:
            line = self._line(at)
            moments.append(self._moment(name, at, tokens * line(at)))
            growing.append(line.slope * tokens * at)
        if self.conversion is not None and self.conversion.tokens <= end:
            moments.append(self.conversion)
            growing.append(0.0)
        top = max(range(len(moments)), key=lambda i: moments[i].peak_bytes)
        return Fit(
            context=context,
            kv=self.engine.config.kv,
            chunk=self.chunk,
            weights_bytes=self.engine.weights_bytes,
            kv_bytes=kv,
            growing_bytes=round(growing[top]),
            moments=tuple(moments),
        )

    def largest(self, memory_bytes: int) -> int | None:
        """The largest context whose peak is at most `memory_bytes`; None where one token's is not, `MOST_TOKENS` where
        no context that is looked at takes more."""
        low, high = 0, 1
        while high <= MOST_TOKENS and self.at(high).peak.peak_bytes <= memory_bytes:
            low, high = high, 2 * high
        while high - low > 1 and high <= MOST_TOKENS:
            middle = (low + high) // 2
            low, high = (middle, high) if self.at(middle).peak.peak_bytes <= memory_bytes else (low, middle)
        return low or None


def measured_peak(engine: Engine, context: int) -> int:
    """Bytes at the peak of really running a context, seeded tokens and all."""
    prompt, decoded = split_context(context)
    draws = np.random.Generator(np.random.PCG64(SEED)).integers(0, VOCABULARY, prompt)
    sampling = SamplingParams(max_tokens=decoded, ignore_eos=True)
    return engine.generate([int(token) for token in draws], sampling).timing.peak_bytes
