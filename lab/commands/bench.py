"""`frontier bench`: one speed of the engine over another stack's, measured in the same run."""

from __future__ import annotations

import argparse
from dataclasses import asdict
from pathlib import Path

from lab.console import Output, progress_callback

HELP = "decode or prefill speed against mlx-lm, interleaved, with interval and percent of the machine's limit"
EXAMPLE = "frontier bench decode --against mlx-lm --rounds 4"
DEFAULT_MODEL = "smollm2-135m-instruct-fp32"
SEED = 7
DECODE_TOKENS = 33


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Flags of `frontier bench`."""
    parser.add_argument("task", choices=("decode", "prefill"))
    parser.add_argument("--model", default=DEFAULT_MODEL, help="built-in name, model folder or hub id")
    parser.add_argument("--against", choices=("mlx-lm", "optiq", "engine"), default="mlx-lm", help="engine: an A/A run")
    parser.add_argument("--kv", default="native", help="KV scheme of both sides: native, kv8, kv4:g32, ...")
    parser.add_argument("--rounds", type=int, default=4, metavar="N", help="quads of four samples (default: 4)")
    parser.add_argument("--prompt-tokens", type=int, default=128, metavar="N")
    parser.add_argument("--max-tokens", type=int, metavar="N", help="tokens a decode sample (default: 33)")


def run(args: argparse.Namespace) -> int:
    """Exit code 0 whatever the ratio is."""
    from engine import errors, load_tokenizer, parse_kv, resolve_model
    from evals.corpus import sequences
    from lab import ceilings
    from lab.bench import PREFILL_DECODE_TOKENS, TASKS, run_quads, summarise, words
    from lab.metrics import show, show_interval
    from oracles.client import Worker
    from oracles.contract import StackConfig, TimeProbe
    from oracles.live import require_scheme

    if args.max_tokens is None:
        args.max_tokens = DECODE_TOKENS
    elif args.task == "prefill":
        raise errors.InvalidValue("--max-tokens", args.max_tokens, "only with decode")
    check_sizes(args)
    out = Output(as_json=args.json)
    kv = str(parse_kv(args.kv))
    with progress_callback() as bar:
        folder = Path(resolve_model(args.model, progress=bar))
    limits = ceilings.measure(args.blas)
    artifact = ceilings.read_artifact(folder)
    out.line(ceilings.describe(limits))
    ids = tuple(sequences(load_tokenizer(folder), 1, args.prompt_tokens)[0])
    tokens = args.max_tokens if args.task == "decode" else PREFILL_DECODE_TOKENS
    names = {"A": "engine", "B": args.against}
    with (
        Worker(StackConfig(stack="engine", model=str(folder), kv=kv, blas=args.blas)) as ours,
        Worker(StackConfig(stack=args.against, model=str(folder), kv=kv, blas=args.blas)) as theirs,
        progress_callback() as bar,
    ):
        arms = {"A": (names["A"], kv, ours), "B": (names["B"], kv, theirs)}
        probe = TimeProbe(token_ids=ids, max_tokens=tokens)
        samples = run_quads(
            arms, probe, args.rounds, SEED, require_scheme, lambda _text, done, total: bar("samples", done, total)
        )
    metric = TASKS[args.task]
    result = summarise(samples, metric)
    floor = ceilings.Floor.of(artifact, max(s.sample.kv_bytes for s in samples), len(ids), limits)
    percent = floor.decode_percent if args.task == "decode" else floor.prefill_percent
    bound = floor.decode_bound if args.task == "decode" else floor.prefill_bound
    for name, estimate in ((names["A"], result.a), (names["B"], result.b)):
        span = show_interval(metric, estimate.low, estimate.high)
        share = f"{percent(estimate.value):.0f} % of limit ({bound})"
        out.line(f"{name}: {show(metric, estimate.value)} tok/s, {span}, {share}")
    out.line(words(result, names["A"], names["B"]))
    out.document(
        {
            "task": args.task,
            "metric": metric,
            "model": args.model,
            "kv": kv,
            "against": args.against,
            "ratio": asdict(result.ratio),
            "engine": asdict(result.a) | {"percent_of_limit": percent(result.a.value)},
            "other": asdict(result.b) | {"percent_of_limit": percent(result.b.value)},
            "prompt_tokens": len(ids),
            "max_tokens": tokens,
            "ceilings": limits.as_dict(),
            "samples": [asdict(s) for s in samples],
        },
        always=True,
    )
    return 0


def check_sizes(args: argparse.Namespace) -> None:
    """Refuse sizes that measure nothing, before anything is loaded."""
    from engine import errors

    for flag, value, least in (
        ("--rounds", args.rounds, 1),
        ("--prompt-tokens", args.prompt_tokens, 2),
        ("--max-tokens", args.max_tokens, 2),
    ):
        if value < least:
            raise errors.InvalidValue(flag, value, f"an integer >= {least}")
