"""`frontier perplexity`: of one model and KV scheme on a frozen text set, under a protocol that has a name."""

from __future__ import annotations

import argparse
from typing import Any

from lab.console import Output, progress_callback
from lab.flags import add_text_flags

HELP = "teacher-forced perplexity on a frozen text set, with an interval by text"
EXAMPLE = "frontier perplexity --model smollm2-135m-instruct-fp32 --corpus wikipedia --sequences 16 --length 256"
DEFAULT_TAIL, DEFAULT_BATCH = 32, 4


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Flags of `frontier perplexity`."""
    add_text_flags(parser, length=256)
    parser.add_argument("--kv", default="native", help="KV scheme")
    parser.add_argument(
        "--protocol",
        default="forward",
        choices=("step", "served", "forward"),
        help="forward: all but the first position, in one forward; step: the tail, token by token; served: the same "
        "with texts as rows of the engine's batch",
    )
    parser.add_argument("--batch", type=int, metavar="N", help="texts beside each other, with served (default: 4)")
    parser.add_argument("--chunk", type=int, default=2048, metavar="N", help="prompt tokens a forward (default: 2048)")
    parser.add_argument(
        "--warm", type=int, metavar="N", help="the first N tokens of a text come out of a kept state (default: cold)"
    )


def run(args: argparse.Namespace) -> int:
    """Exit code 0."""
    from engine import errors, load_tokenizer, parse_kv, resolve_model
    from evals.corpora import find_corpus
    from evals.corpus import cut, first
    from evals.perplexity import run_perplexity
    from evals.protocol import Plan
    from oracles.contract import StackConfig

    out = Output(as_json=args.json)
    if args.protocol == "forward" and args.tail is not None:
        raise errors.InvalidValue("--tail", args.tail, "only with --protocol step: forward feeds one forward")
    tail = DEFAULT_TAIL if args.tail is None else args.tail
    if args.batch is not None and args.protocol != "served":
        raise errors.InvalidValue("--batch", args.batch, "only with --protocol served")
    group = 1 if args.protocol != "served" else DEFAULT_BATCH if args.batch is None else args.batch
    for flag, count in (("--chunk", args.chunk), ("--warm", args.warm)):
        if count is not None and count < 1:
            raise errors.InvalidValue(flag, count, "an integer >= 1")
    plan, warm = Plan(args.protocol, args.length, tail, group), args.warm or 0
    plan.check_prefix("--warm", warm)
    corpus, kv = find_corpus(args.corpus), str(parse_kv(args.kv))
    texts = first(corpus.items(), args.sequences)
    with progress_callback() as progress:
        folder = resolve_model(args.model, progress=progress)
        ids = cut(load_tokenizer(folder), texts, args.length + 1)
        config = StackConfig(
            stack=args.stack, model=str(folder), dtype=args.dtype, kv=kv, blas=args.blas, chunk=args.chunk
        )
        if warm:
            plan.check_boundary(config, warm)
        how: dict[str, Any] = {"protocol": args.protocol, "tail": tail, "group": group, "warm": warm}
        result = run_perplexity(config, ids, **how, progress=progress)
    # What two numbers must share to be compared, in one word.
    tails = "" if args.protocol == "forward" else f"-tail{tail}"
    name = f"{args.corpus}-{args.sequences}x{args.length}-{args.protocol}{tails}"
    found = result.perplexity
    span = "one text has no interval"
    if found.low is not None and found.high is not None:
        span = f"95 % interval by text {found.low:.4g} to {found.high:.4g}"
    out.line(f"perplexity {found.value:.4g}, {span}")
    kept = f", {warm} tokens of each out of a kept state" if warm else ""
    out.line(f"protocol {name}, texts {corpus.sha256[:16]}, {result.scored} positions, KV {result.live}{kept}")
    out.document(
        {"model": args.model, "protocol": name, "corpus_sha256": corpus.sha256, "blas": args.blas, **result.as_dict()},
        always=True,
    )
    return 0
