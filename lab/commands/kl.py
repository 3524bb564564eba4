"""`frontier kl`: KL divergence of KV schemes from a reference, on the path that is served."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lab.console import Output, progress_callback, size, wide_console
from lab.flags import add_text_flags, add_tier_flags, check_file, tier_kv

if TYPE_CHECKING:
    from evals.fidelity import FidelityResult
    from evals.protocol import Plan
    from oracles.contract import StackConfig

HELP = "KL(reference || candidate) of KV schemes beside their bytes, over positions that attended the quantised cache"
EXAMPLE = "frontier kl --model smollm2-135m-instruct-fp32 --reference native --candidate kv8,kv8/4,turbo:k8v3"
CLASSES = ("L", "Q8", "QT")
DEFAULT_TAIL, DEFAULT_BATCH = 32, 4
DEFAULT_REFERENCE, DEFAULT_CANDIDATE = "native", "kv8,kv4"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Flags of `frontier kl`."""
    add_text_flags(parser, length=128)
    parser.add_argument("--reference", metavar="KV", help="KV scheme of the reference (default: native)")
    parser.add_argument("--candidate", metavar="KV[,KV...]", help=f"KV schemes to judge (default: {DEFAULT_CANDIDATE})")
    add_tier_flags(parser, "--candidate")
    parser.add_argument(
        "--protocol",
        default="step",
        choices=("step", "served", "forward"),
        help="step: prefill, convert, then token by token; served: the same with texts as rows of the engine's batch; "
        "forward: convert after token 1, then one forward",
    )
    parser.add_argument("--batch", type=int, metavar="N", help="texts beside each other, with served (default: 4)")
    parser.add_argument("--candidate-batch", type=int, metavar="N", help="of the candidates (default: the same)")
    parser.add_argument("--candidate-model", metavar="M", help="weights of the candidates (default: the reference's)")
    parser.add_argument("--candidate-dtype", metavar="D", help="dtype of the candidates (default: the reference's)")
    parser.add_argument("--chunk", type=int, default=2048, metavar="N", help="prompt tokens a forward of the reference")
    parser.add_argument("--candidate-chunk", type=int, metavar="N", help="of the candidates (default: the same)")
    parser.add_argument(
        "--reference-warm",
        type=int,
        metavar="N",
        help="the first N tokens of a text come out of a kept state, with served of the prefix cache (default: cold)",
    )
    parser.add_argument("--candidate-warm", type=int, metavar="N", help="the same of the candidates (default: cold)")
    parser.add_argument(
        "--layers", action="store_true", help="also the error of the residual stream after each layer: where it enters"
    )
    parser.add_argument(
        "--lens", action="store_true", help="with --layers: KL of what the final norm and the head make of each layer"
    )
    parser.add_argument(
        "--free", type=int, metavar="N", help="also let each arm generate N tokens by itself: where texts part"
    )
    parser.add_argument("--save-reference", metavar="FILE", help="run the reference alone and keep what KL needs of it")
    parser.add_argument("--reference-file", metavar="FILE", help="such a file in place of running the reference")
    parser.add_argument("--plot", metavar="FILE", help="also draw it, as .png or .svg")
    parser.add_argument("--fidelity-class", choices=CLASSES, help="also judge each candidate by this class's gate")


def run(args: argparse.Namespace) -> int:
    """Exit code 1 when a gate was asked for and a candidate fails it, else 0."""
    from engine import errors, load_tokenizer, parse_kv, resolve_model
    from evals.corpora import find_corpus
    from evals.corpus import cut, first
    from evals.fidelity import ids_digest, run_fidelity
    from evals.stored import read_reference, store_reference
    from oracles.contract import StackConfig

    out = Output(as_json=args.json)
    if args.protocol == "forward" and args.tail is not None:
        raise errors.InvalidValue("--tail", args.tail, "only with --protocol step: forward feeds one forward")
    if args.batch is not None and args.protocol != "served":
        raise errors.InvalidValue("--batch", args.batch, "only with --protocol served")
    group = 1 if args.protocol != "served" else DEFAULT_BATCH if args.batch is None else args.batch
    tail = DEFAULT_TAIL if args.tail is None else args.tail
    check_files(args)
    if args.plot is not None:
        from lab.kl_figure import FORMATS

        check_file("--plot", Path(args.plot), FORMATS)
    if args.lens and not args.layers:
        raise errors.InvalidValue("--lens", args.lens, "only with --layers")
    changes = (
        *(args.candidate_model, args.candidate_dtype, args.candidate_chunk, args.candidate_warm),
        args.candidate_batch,
    )
    other = any(value is not None for value in changes)
    for flag in ("--chunk", "--candidate-chunk", "--reference-warm", "--candidate-warm", "--free"):
        count = vars(args)[flag[2:].replace("-", "_")]
        if count is not None and count < 1:
            raise errors.InvalidValue(flag, count, "an integer >= 1")
    plan = check_plan(args, tail, group)
    asked = str(tier_kv(args, "--candidate", out, "native" if other else DEFAULT_CANDIDATE))
    names = [str(parse_kv(name)) for name in asked.split(",")]
    if len(set(names)) != len(names):
        raise errors.InvalidValue("--candidate", asked, "each scheme once")
    corpus = find_corpus(args.corpus)
    texts = first(corpus.items(), args.sequences)
    with progress_callback() as progress:
        folder = resolve_model(args.model, progress=progress)
        tokenizer = load_tokenizer(folder)
        ids = cut(tokenizer, texts, args.length + 1)
        reference = StackConfig(
            stack=args.stack,
            model=str(folder),
            dtype=args.dtype,
            kv=str(parse_kv(args.reference or DEFAULT_REFERENCE)),
            blas=args.blas,
            chunk=args.chunk,
        )
        if args.save_reference is not None:
            path = Path(args.save_reference)
            store_reference(reference, ids, path, plan=plan, ids_sha256=ids_digest(ids), progress=progress)
            out.line(f"reference: {path} ({size(path.stat().st_size)})")
            out.document({"model": args.model, "corpus": args.corpus, "reference": str(path)}, always=True)
            return 0
        changed = replace(
            reference,
            model=str(resolve_model(args.candidate_model, progress=progress)) if args.candidate_model else str(folder),
            dtype=args.candidate_dtype or args.dtype,
            chunk=args.chunk if args.candidate_chunk is None else args.candidate_chunk,
        )
        candidates = [replace(changed, kv=name) for name in names]
        check_boundaries(plan, [reference], args.reference_warm)
        check_boundaries(plan, candidates, args.candidate_warm)
        results = run_fidelity(
            reference if args.reference_file is None else read_reference(Path(args.reference_file)),
            candidates,
            ids,
            protocol=args.protocol,
            tail=tail,
            group=group,
            candidate_group=args.candidate_batch,
            labels=tuple(text.domain for text in texts),
            corpus_sha256=corpus.sha256,
            layers=args.layers,
            lens=args.lens,
            reference_warm=args.reference_warm or 0,
            candidate_warm=args.candidate_warm or 0,
            free=args.free or 0,
            progress=progress,
        )
    return show(out, results, args, tokenizer.decode)


def check_plan(args: argparse.Namespace, tail: int, group: int) -> Plan:
    """The protocol's sizes, and kept prefixes that go with them, before anything is fetched. Raises `InvalidValue`."""
    from engine import errors
    from evals.protocol import Plan

    plan = Plan(args.protocol, args.length, tail, group)
    plan.check_group("--candidate-batch", args.candidate_batch)
    for name in ("reference_warm", "candidate_warm"):
        tokens = vars(args)[name]
        if tokens is not None:
            plan.check_prefix(name, tokens)
            if args.stack != "engine":
                raise errors.InvalidValue(f"--{name.replace('_', '-')}", tokens, "with the stack 'engine' alone")
    return plan


def check_boundaries(plan: Plan, arms: Sequence[StackConfig], tokens: int | None) -> None:
    """Raise `InvalidValue` unless every arm may keep a prefix of so many tokens; None: they run cold."""
    for arm in arms if tokens is not None else ():
        plan.check_boundary(arm, int(tokens or 0))


def check_files(args: argparse.Namespace) -> None:
    """Raise `InvalidValue` for a flag that a kept reference leaves without a meaning."""
    from engine import errors

    if args.save_reference is not None:
        check_file("--save-reference", Path(args.save_reference))
    changed = ("model", "dtype", "chunk", "warm", "batch")
    candidates = ("candidate", "l1", "l2", *(f"candidate_{what}" for what in changed))
    streams = ("layers", "lens", "free", "reference_warm")  # a kept reference has no streams, and runs no more
    idle = {
        "save_reference": (*candidates, *streams, "reference_file", "plot", "fidelity_class"),
        "reference_file": ("reference", *streams),
    }
    for name, without in idle.items():
        for other in without if vars(args)[name] is not None else ():
            if vars(args)[other] not in (None, False):
                flags = [f"--{each.replace('_', '-')}" for each in (other, name)]
                raise errors.InvalidValue(flags[0], vars(args)[other], f"not together with {flags[1]}")


def show(
    out: Output, results: list[FidelityResult], args: argparse.Namespace, decode: Callable[[Sequence[int]], str]
) -> int:
    """Print the table, smallest cache first, and the JSON document; draw the plot."""
    from evals.gate import gate
    from lab.kl_tables import details, largest_step, layer_table, parting, summary, worst

    results = sorted(results, key=lambda result: result.candidate_token_bytes)
    wide_console(out).print(summary(results))
    for result in results:
        out.line(details(result))
        out.line(worst(result, decode))
        if result.left_out is not None:
            out.line(f"  stored reference: its mean KL falls short by {result.left_out:.2g} on the first text")
        if result.free is not None:
            out.line(parting(result.free))
        if result.layers:
            wide_console(out).print(layer_table(result))
            out.line(largest_step(result))
    if args.plot is not None:
        from lab.kl_figure import draw, save

        many = "1 KV scheme" if len(results) == 1 else f"{len(results)} KV schemes"
        title = f"{Path(args.model).name}: {many} against {results[0].reference.kv}"
        figure, zero = draw(results, title, decode)
        save(figure, args.plot)
        out.line(f"plot: {args.plot}" + (f"; not drawn, a KL of 0: {', '.join(zero)}" if zero else ""))
    first = results[0]
    if first.report.floor is not None:
        out.line(f"A/A floor: mean {first.report.floor.kl_mean:.3g}, max {first.report.floor.kl_max:.3g} nats")
    what = f"{args.corpus} texts, {args.sequences} x {args.length} tokens"
    out.line(f"{first.plan.protocol} protocol, {what}, {first.seconds:.0f} s")
    documents: list[dict[str, Any]] = []
    failed = False
    for result in results:
        document = result.as_dict()
        if args.fidelity_class is not None:
            verdict = gate(result.report, args.fidelity_class, lever=result.lever)
            document["gate"] = verdict.as_dict()
            failed = failed or verdict.status == "FAIL"
            out.line(f"{result.candidate.kv}: gate {args.fidelity_class} {verdict.words}")
        documents.append(document)
    out.document(
        {"model": args.model, "corpus": args.corpus, "blas": args.blas, "ok": not failed, "results": documents},
        always=True,
    )
    return 1 if failed else 0
