"""`frontier chat`: a conversation on the terminal, or over a pipe with one line a turn."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from engine import Generation, Request, errors
from lab.console import Output, progress_callback
from lab.flags import add_model_flags, add_sampling_flags, engine_options, sampling_params
from lab.prefix_words import prefix_line

if TYPE_CHECKING:
    from engine import Engine

HELP = "talk with a model; keys: q quits, r resets, h helps"
EXAMPLE = 'frontier chat --model smollm2-135m-instruct --system-prompt "Answer in one sentence."'

KEYS = "q: quit   r: forget the conversation   h: this help   anything else: a message"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_model_flags(parser)
    parser.add_argument("--system-prompt", help="the first message of the conversation")
    add_sampling_flags(parser, max_tokens=256)


def _lines(out: Output) -> Iterator[str]:
    """What the user types, until the end of input; a pipe gets no prompt signs."""
    if not sys.stdin.isatty():
        yield from (line.rstrip("\n") for line in sys.stdin)
        return
    import readline  # noqa: F401  its import gives input() history and line editing

    while True:
        try:
            yield input(">> ")
        except EOFError:
            out.line()
            return


class Conversation:
    """The messages so far. A turn that fails or is cancelled leaves no trace in them."""

    def __init__(self, engine: Engine, args: argparse.Namespace) -> None:
        self._engine, self._args = engine, args
        self.messages: list[dict[str, str]] = []
        self.turns = 0
        self.reset()

    def reset(self) -> None:
        system = self._args.system_prompt
        self.messages = [] if system is None else [{"role": "system", "content": system}]

    def say(self, text: str, out: Output) -> Generation:
        """One turn, streamed. Each turn has a seed of its own, derived from --seed."""
        seed = None if self._args.seed is None else (self._args.seed + self.turns) % 2**64
        asked = [*self.messages, {"role": "user", "content": text}]
        handle = self._engine.submit(Request(prompt=asked, sampling=sampling_params(self._args, seed=seed)))
        try:
            for event in handle.events():
                out.piece(event.text)
            result = handle.result()
        finally:
            handle.cancel()
        out.line()
        self.messages = [*asked, {"role": "assistant", "content": result.text}]
        self.turns += 1
        return result


def _talk(conversation: Conversation, out: Output) -> list[dict[str, Any]]:
    record: list[dict[str, Any]] = []
    for line in _lines(out):
        if line == "q":
            break
        if line == "r":
            conversation.reset()
            out.line("(the conversation is forgotten)")
        elif line == "h":
            out.line(KEYS)
        elif line.strip():
            try:
                result = conversation.say(line, out)
            except KeyboardInterrupt:
                out.line("\n(interrupted; this turn is forgotten)")
                continue
            except errors.FrontierError as error:
                if not sys.stdin.isatty():
                    raise
                out.line(f"error: {error}")
                continue
            record.append({"user": line, "assistant": result.text, "finish_reason": result.finish_reason,
                           "usage": asdict(result.usage), "seed": result.plan.seed})  # fmt: skip
    return record


def run(args: argparse.Namespace) -> int:
    sampling_params(args, seed=args.seed)
    out = Output(as_json=args.json)
    options = engine_options(args, out)
    from engine import load  # loads MLX, after the BLAS was chosen and the flags were checked

    with progress_callback() as progress:
        engine = load(args.model, progress=progress, **options)
    with engine:
        if engine.tokenizer is None or not engine.tokenizer.has_template:
            raise errors.TemplateMissing(args.model)
        out.line(f"{args.model}   {KEYS}")
        record, prefixes = _talk(Conversation(engine, args), out), engine.prefix_status()
    if prefixes is not None:
        out.line(prefix_line(prefixes))
    out.document({"model": args.model, "turns": record})
    return 0
