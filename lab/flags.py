"""Flags that several commands share, named as in mlx-lm, and what they expand to."""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from engine import SamplingParams, errors
from lab.sizes import parse_size

if TYPE_CHECKING:
    from lab.console import Output

DEFAULT_MODEL = "smollm2-135m-instruct"
MLX_LM_KV_START = 5000  # mlx-lm's default of --quantized-kv-start
KV_CONFIG = (
    "kv_config.json"  # the name that `optiq kv-cache` gives a plan; optiq itself looks for none in a model folder
)

# Flags of mlx-lm that are known and not honoured yet: flag -> what to use instead.
NOT_BUILT = {
    "--adapter-path": "",
    "--draft-model": "",
    "--extra-eos-token": "use --stop with its text",
    "--max-kv-size": "",
    "--prefill-response": "",
    "--prompt-cache-file": "",
    "--image": "",
}


class _NotBuilt(argparse.Action):
    """A known flag that is refused by name instead of being taken for a typing error."""

    def __call__(self, parser: Any, namespace: Any, values: Any, option_string: str | None = None) -> None:
        flag = str(option_string)
        raise errors.NotBuilt(flag, NOT_BUILT[flag])


def add_model_flags(parser: argparse.ArgumentParser) -> None:
    """What is loaded and how: model, dtype, KV scheme, chunk."""
    group = parser.add_argument_group("model")
    group.add_argument(
        "--model",
        default=DEFAULT_MODEL,
        help=f"a model folder, a built-in name (frontier models) or a hub id (default: {DEFAULT_MODEL})",
    )
    group.add_argument(
        "--dtype", help="auto (the checkpoint's own; default unless this machine has one), float32, bfloat16 or float16"
    )
    group.add_argument(
        "--kv",
        help="KV cache: native (default), kv8, kv8/4 (keys/values), mixed:FILE, turbo:k8v3; options :g32, :start=5000, "
        ":on-write, :skip",
    )
    group.add_argument("--kv-bits", type=int, help="mlx-lm's form of --kv; takes its start of 5000 tokens")
    group.add_argument("--kv-group-size", type=int, help="with --kv-bits (default: 64)")
    group.add_argument("--quantized-kv-start", type=int, help=f"with --kv-bits (default: {MLX_LM_KV_START})")
    group.add_argument("--prefill-step-size", type=int, help="prompt tokens per forward (default: 2048)")
    group.add_argument(
        "--prefix-cache", metavar="SIZE", help="keep so much of what prompts begin with (2GB, 512MiB; default: nothing)"
    )
    group.add_argument("--profile", default="auto", help="auto, family, or universal: config.json read as llama's")
    group.add_argument("--recurrence", help="fast (mlx-lm's bits), or plain: a reference, token by token")
    group.add_argument("--fuse", help="quantized: packed projections of one input as one product")
    group.add_argument("--compile", help="step: the decode step as one compiled trace (equal bits)")
    group.add_argument("--ops", help="mlx or lean: one token by traces, x86-64 and CUDA (equal bits)")
    group.add_argument("--argmax", help="normalised: greedy tokens in one pass, CUDA only (equal bits)")
    add_tier_flags(group, "--kv")
    for flag in NOT_BUILT:
        group.add_argument(flag, action=_NotBuilt, nargs="*", help=argparse.SUPPRESS)


def add_tier_flags(group: argparse._ActionsContainer, flag: str) -> None:
    """--l1 and --l2, which stand for a value of `flag`; `tier_kv` expands them."""
    tier = group.add_mutually_exclusive_group()
    tier.add_argument("--l1", action="store_true", help=f"the bits of mlx-lm (default); expands to {flag} native")
    tier.add_argument(
        "--l2",
        action="store_true",
        help=f"the bits of mlx-optiq's per-layer KV; expands to {flag} mixed:MODEL/{KV_CONFIG}",
    )


def add_text_flags(parser: argparse.ArgumentParser, *, length: int) -> None:
    """What is fed, to which model, by whom: for commands that score frozen texts."""
    parser.add_argument("--model", default=DEFAULT_MODEL, help=f"name, folder or hub id (default: {DEFAULT_MODEL})")
    parser.add_argument("--stack", default="engine", choices=("engine", "mlx-lm", "optiq"), help="who runs it")
    parser.add_argument("--dtype", default="auto", help="auto (the checkpoint's own), float32, bfloat16 or float16")
    parser.add_argument(
        "--corpus", default="frozen", metavar="NAME", help="frozen (default), wikipedia, qasper, agents, tools or calls"
    )
    parser.add_argument("--sequences", type=int, default=16, metavar="N", help="texts of the set, at most 64")
    parser.add_argument("--length", type=int, default=length, metavar="N", help=f"tokens of each (default: {length})")
    parser.add_argument("--tail", type=int, metavar="N", help="tokens fed one at a time (default: 32)")


def tier_kv(args: argparse.Namespace, flag: str, out: Output, default: str | None = None) -> str | None:
    """The value of `flag`: what was given, or what --l1 or --l2 stands for, which is then printed, or `default`.

    Raises `InvalidValue` where both were given, `CorruptFile` where the model's folder has no plan, and what
    `resolve_model` raises.
    """
    given: str | None = vars(args)[flag.removeprefix("--")]
    if not (args.l1 or args.l2):
        return default if given is None else given
    tier = "--l1" if args.l1 else "--l2"
    if given is not None:
        raise errors.InvalidValue(flag, given, f"without {tier}, which stands for a value of {flag}")
    kv = "native" if args.l1 else f"mixed:{plan_of_model(args.model)}"
    out.line(f"{tier}: {flag} {kv}")
    return kv


def plan_of_model(model: str) -> Path:
    """The KV plan in a model's folder. Raises `CorruptFile` where there is none."""
    from engine import resolve_model
    from lab.console import progress_callback

    with progress_callback() as progress:
        path = Path(resolve_model(model, progress=progress)) / KV_CONFIG
    if not path.is_file():
        raise errors.CorruptFile(
            path, "not there, and --l2 is the plan that comes with the model; make one, or use --kv"
        )
    return path


def kv_scheme(args: argparse.Namespace, out: Output) -> str | None:
    """The KV notation that the flags ask for; None leaves the engine's default."""
    if args.kv_bits is not None and (args.l1 or args.l2):
        raise errors.InvalidValue("--kv-bits", args.kv_bits, "without --l1 and --l2, which stand for a value of --kv")
    kv = tier_kv(args, "--kv", out)
    if args.kv_bits is None:
        for flag, value in (("--kv-group-size", args.kv_group_size), ("--quantized-kv-start", args.quantized_kv_start)):
            if value is not None:
                raise errors.InvalidValue(flag, value, "only together with --kv-bits")
        return kv
    if kv is not None:
        raise errors.InvalidValue("--kv-bits", args.kv_bits, "only without --kv; they say the same thing")
    start = MLX_LM_KV_START if args.quantized_kv_start is None else args.quantized_kv_start
    return f"kv{args.kv_bits}:g{64 if args.kv_group_size is None else args.kv_group_size}:start={start}"


def engine_options(args: argparse.Namespace, out: Output) -> dict[str, Any]:
    """Keyword arguments of `engine.load`, the model apart."""
    options: dict[str, Any] = {}
    kv = kv_scheme(args, out)
    if kv is not None:
        options["kv"] = kv
    if args.profile != "auto":
        options["profile"] = args.profile
    # What is not said keeps the default of this machine; what is said is passed on, also where it is the general one.
    for name in ("dtype", "recurrence", "fuse", "compile", "argmax", "ops"):
        if vars(args)[name] is not None:
            options[name] = vars(args)[name]
    if args.prefill_step_size is not None:
        options["prefill_chunk"] = args.prefill_step_size
    if args.prefix_cache is not None:
        options["prefix_cache"] = parse_size("--prefix-cache", args.prefix_cache)
    return options


def add_sampling_flags(parser: argparse.ArgumentParser, *, max_tokens: int) -> None:
    """How tokens are chosen and when to stop."""
    group = parser.add_argument_group("sampling")
    group.add_argument("--max-tokens", "-m", type=int, default=max_tokens, help=f"default: {max_tokens}")
    group.add_argument("--temp", type=float, default=0.0, help="temperature; 0, the default, is greedy")
    group.add_argument(
        "--sampler",
        default="categorical",
        metavar="NAME",
        help="what is drawn from: categorical (default), or hlg:width=1,shoulder=2,toe=8,offset=2 (nats)",
    )
    group.add_argument("--top-p", type=float, default=1.0)
    group.add_argument("--min-p", type=float, default=0.0)
    group.add_argument("--min-tokens-to-keep", type=int, default=1, help="never cut by --min-p")
    group.add_argument("--top-k", type=int, default=0)
    group.add_argument("--xtc-probability", type=float, default=0.0)
    group.add_argument("--xtc-threshold", type=float, default=0.1)
    for name in ("repetition", "presence", "frequency"):
        group.add_argument(f"--{name}-penalty", type=float, default=0.0)
        group.add_argument(f"--{name}-context-size", type=int, default=20, help=argparse.SUPPRESS)
    group.add_argument("--logit-bias", action="append", default=[], metavar="ID:VALUE", help="repeatable")
    group.add_argument("--seed", type=int, help="without one, a seed is drawn and reported")
    group.add_argument("--stop", action="append", default=[], metavar="TEXT", help="repeatable")
    group.add_argument("--ignore-eos", action="store_true", help="generate up to --max-tokens")


def _bias(entries: list[str]) -> dict[int, float]:
    bias: dict[int, float] = {}
    for entry in entries:
        token, _, value = entry.replace("=", ":").partition(":")
        try:
            bias[int(token)] = float(value)
        except ValueError as error:
            raise errors.InvalidValue("--logit-bias", entry, "ID:VALUE, for instance 15043:2.5") from error
    return bias


def sampling_params(args: argparse.Namespace, *, seed: int | None, top_logprobs: int | None = None) -> SamplingParams:
    """The `SamplingParams` of the flags."""
    return SamplingParams(
        max_tokens=args.max_tokens,
        temperature=args.temp,
        sampler=args.sampler,
        seed=seed,
        stop=tuple(args.stop),
        ignore_eos=args.ignore_eos,
        top_p=args.top_p,
        top_k=args.top_k,
        min_p=args.min_p,
        min_tokens_to_keep=args.min_tokens_to_keep,
        xtc_probability=args.xtc_probability,
        xtc_threshold=args.xtc_threshold,
        repetition_penalty=args.repetition_penalty,
        repetition_context_size=args.repetition_context_size,
        presence_penalty=args.presence_penalty,
        presence_context_size=args.presence_context_size,
        frequency_penalty=args.frequency_penalty,
        frequency_context_size=args.frequency_context_size,
        logit_bias=_bias(args.logit_bias),
        top_logprobs=top_logprobs,
    )


def json_object(flag: str, text: str) -> dict[str, Any]:
    """The JSON object that a flag holds."""
    try:
        value = json.loads(text)
    except json.JSONDecodeError as error:
        raise errors.InvalidValue(flag, text, "a JSON object") from error
    if not isinstance(value, dict):
        raise errors.InvalidValue(flag, text, "a JSON object")
    return value


def check_folder(flag: str, path: Path) -> None:
    """Raise `InvalidValue` for a folder that could not be made or written to: the first of its path that is there must
    be a folder, and ours to write."""
    there = next(each for each in (path.absolute(), *path.absolute().parents) if each.exists() or each.is_symlink())
    if not there.is_dir():
        raise errors.InvalidValue(flag, str(path), f"a folder, or a path that does not exist yet; {there} is a file")
    if not os.access(there, os.W_OK):
        raise errors.InvalidValue(flag, str(path), f"a folder that can be written to; {there} cannot")


def check_file(flag: str, path: Path, formats: Sequence[str] = ()) -> None:
    """Raise `InvalidValue` for a file that could not be written. formats: the endings that it may have, any if none."""
    if formats and path.suffix not in formats:
        raise errors.InvalidValue(flag, str(path), f"a file that ends in {' or '.join(formats)}")
    if path.is_dir() or not path.absolute().parent.is_dir():
        raise errors.InvalidValue(flag, str(path), "a file in a folder that is there")
    if not os.access(path if path.exists() else path.absolute().parent, os.W_OK):
        raise errors.InvalidValue(flag, str(path), "a file that can be written")
