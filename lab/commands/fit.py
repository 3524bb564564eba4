"""`frontier fit`: the peak memory of a context, before it is run."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from lab.console import Output, progress_callback, size
from lab.sizes import parse_size

if TYPE_CHECKING:
    from engine import Engine
    from lab.fit import Fit

HELP = "predict the peak memory of a context under KV schemes; loads the model and measures short pieces on it"
EXAMPLE = "frontier fit smollm2-135m-instruct --ctx 8192 --kv native,kv8 --memory 2GiB"
ACCURACY = 0.05


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Flags of `frontier fit`."""
    parser.add_argument("model", metavar="MODEL", help="model folder, built-in name or hub id; it is loaded")
    parser.add_argument("--ctx", type=int, required=True, metavar="N", help="tokens: N - 64 of prompt, 64 decoded")
    parser.add_argument("--kv", default="native", metavar="S[,S...]", help="KV schemes, one after the other")
    parser.add_argument("--chunk", type=int, metavar="C", help="prompt tokens per forward (default: 2048)")
    parser.add_argument(
        "--dtype", help="auto (the checkpoint's own; default unless this machine has one), float32, bfloat16 or float16"
    )
    parser.add_argument(
        "--memory", metavar="SIZE", help="bytes, or 8GB, 8GiB, ...: does it fit, and the largest context that does"
    )
    parser.add_argument("--check", action="store_true", help="run the context for real, and print both peaks")


def run(args: argparse.Namespace) -> int:
    """Exit code 1 when a scheme does not fit into --memory, or --check finds a peak more than 5 % away; else 0."""
    from engine import errors, parse_kv

    if args.ctx < 1:
        raise errors.InvalidValue("--ctx", args.ctx, "an integer >= 1")
    memory = None if args.memory is None else parse_size("--memory", args.memory)
    schemes = [str(parse_kv(text)) for text in args.kv.split(",")]
    options: dict[str, Any] = {} if args.dtype is None else {"dtype": args.dtype}
    if args.chunk is not None:
        options["prefill_chunk"] = args.chunk
    out, documents = Output(as_json=args.json), []
    for kv in schemes:
        documents.append(fit_one(out, args.model, {**options, "kv": kv}, args.ctx, memory, check=args.check))
    good = all(doc.get("fits", True) and abs(doc.get("error", 0.0)) <= ACCURACY for doc in documents)
    out.document({"model": args.model, "blas": args.blas, "ok": good, "fits": documents})
    return 0 if good else 1


def fit_one(
    out: Output, model: str, options: dict[str, Any], context: int, memory: int | None, *, check: bool
) -> dict[str, Any]:
    """`report` of a model that is loaded for it, and gone when this returns."""
    from engine import load

    with progress_callback() as progress, load(model, progress=progress, **options) as engine:
        return report(out, engine, context, memory, check=check)


def report(out: Output, engine: Engine, context: int, memory: int | None, *, check: bool) -> dict[str, Any]:
    """Print one scheme's prediction and return it as JSON."""
    from lab.fit import Forecast, measured_peak

    forecast = Forecast(engine, context)
    fit = forecast.at(context)
    longest = _longest(engine)
    print_fit(out, fit)
    document: dict[str, Any] = fit.as_dict()
    if longest is not None and context > longest:
        out.line(f"  note: the model's max_position_embeddings is {longest}")
    if memory is not None:
        largest = forecast.largest(memory)
        document |= {"memory_bytes": memory, "fits": fit.peak.peak_bytes <= memory, "largest_context": largest}
        word = "fits" if document["fits"] else "does not fit"
        most = "no context does" if largest is None else f"the largest context that does: {largest} tokens"
        out.line(f"  {word} into {size(memory)}; {most}")
    if check:
        peak = measured_peak(engine, context)
        error = fit.peak.peak_bytes / peak - 1
        document |= {"measured_bytes": peak, "error": error}
        out.line(f"  measured {size(peak)}, predicted {size(fit.peak.peak_bytes)}: {100 * error:+.1f} %")
    return document


def _longest(engine: Engine) -> int | None:
    config = engine.model_config
    value = config.get("max_position_embeddings", config.get("text_config", {}).get("max_position_embeddings"))
    return value if isinstance(value, int) else None


def print_fit(out: Output, fit: Fit) -> None:
    """What the peak consists of, then every moment that could have been it."""
    peak = fit.peak
    out.line(f"{fit.kv}, {fit.context} tokens, chunks of {fit.chunk}: peak {size(peak.peak_bytes)}, {peak.name}")
    fixed = peak.transient_bytes - fit.growing_bytes
    out.line(
        f"  weights {size(fit.weights_bytes)}, KV {size(peak.kv_bytes)} then and {size(fit.kv_bytes)} at the end, "
        f"transients {size(peak.transient_bytes)}: {size(fixed)} of the chunk, {size(fit.growing_bytes)} by the context"
    )
    for moment in fit.moments:
        out.line(
            f"    {moment.name:<19} {moment.tokens:>8} tokens  KV {size(moment.kv_bytes):>9}  "
            f"transients {size(moment.transient_bytes):>9}  peak {size(moment.peak_bytes):>9}"
        )
