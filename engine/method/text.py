"""Tokens become text while they arrive, and stop strings are found wherever token boundaries lie.

The text of a run is the tokenizer's decode of all its tokens, cut before the first stop string. What `push` returns is
final: it cannot become part of a stop string, and no later token can change it.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Sequence

REPLACEMENT = "\ufffd"  # what decoders put for bytes that are not (yet) UTF-8


class TextStream:
    """Incremental decoding of one run.

    decode: token ids to text. eos_ids: stop tokens; one at the very end is no text. stop: stop strings.
    byte_ids: tokens of one raw byte (byte fallback), which decoders read as a run: a run that is no UTF-8 as a whole
    becomes replacement characters, so its text is not final before it ends.
    stopped: a stop string was found; no further text comes.
    """

    def __init__(
        self,
        decode: Callable[[Sequence[int]], str],
        eos_ids: Container[int],
        stop: tuple[str, ...],
        byte_ids: Container[int] = frozenset(),
    ) -> None:
        self._decode, self._eos_ids, self._stop, self._byte_ids = decode, eos_ids, stop, byte_ids
        self.stopped = False
        # The window is decoded anew at each push. Its first `_anchor` tokens are settled and only there so that
        # decoders treat the rest as a continuation (some strip a leading space); they decode to `_anchor_chars`.
        self._window: list[int] = []
        self._anchor = self._anchor_chars = 0
        self._settled = ""  # settled text that may still become part of a stop string
        self._open = ""  # text that later tokens may change
        self._eos: list[int] = []  # stop tokens that are text only if something follows

    def push(self, token: int) -> str:
        """Take the next token; return the text that has become final."""
        if self.stopped:
            return ""
        if token in self._eos_ids:
            self._eos.append(token)
            return ""
        self._window += [*self._eos, token]
        self._eos.clear()
        text = self._decode(self._window)
        fresh = text[self._anchor_chars :]
        closed = token not in self._byte_ids and not fresh.endswith(REPLACEMENT)
        if closed:
            self._settled += fresh
            self._open = ""
            self._slide(len(text))
        else:
            self._open = fresh
        return self._release()

    def finish(self) -> str:
        """The rest of the text, when no token follows."""
        rest = "" if self.stopped else self._settled + self._open
        self._settled = self._open = ""
        return rest

    def _slide(self, chars: int) -> None:
        """Everything is settled: the newest part becomes the anchor, provided that it has text of its own."""
        newest = self._window[self._anchor :]
        newest_chars = len(self._decode(newest)) if self._anchor else chars
        if newest_chars:
            self._window, chars = newest, newest_chars
        self._anchor, self._anchor_chars = len(self._window), chars

    def _release(self) -> str:
        text = self._settled + self._open
        found = [at for at in (text.find(s) for s in self._stop) if at >= 0]
        if found:
            self.stopped = True
            self._settled = self._open = ""
            return text[: min(found)]
        keep = max((_overlap(self._settled, s) for s in self._stop), default=0)
        final = self._settled[: len(self._settled) - keep]
        self._settled = self._settled[len(final) :]
        return final


def _overlap(text: str, stop: str) -> int:
    """Length of the longest end of `text` that is a proper beginning of `stop`."""
    for n in range(min(len(text), len(stop) - 1), 0, -1):
        if text.endswith(stop[:n]):
            return n
    return 0
