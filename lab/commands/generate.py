"""`frontier generate`: complete one prompt, streaming, with the figures that mlx-lm prints."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from engine import Generation, Request, errors
from lab.console import Output, progress_callback
from lab.flags import add_model_flags, add_sampling_flags, engine_options, json_object, sampling_params
from lab.prefix_words import prefix_line

HELP = "complete a prompt and print the text and its speed"
EXAMPLE = 'frontier generate --model smollm2-135m-instruct --prompt "What is a KV cache?" --max-tokens 64'

RULE = "=" * 10


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_model_flags(parser)
    group = parser.add_argument_group("prompt")
    group.add_argument("--prompt", "-p", required=True, help=r"the text (\n and \t are expanded); - reads stdin")
    group.add_argument("--system-prompt", help="only with a chat template")
    group.add_argument("--ignore-chat-template", action="store_true", help="complete the prompt as it is")
    group.add_argument("--chat-template-config", metavar="JSON", help="variables of the chat template")
    add_sampling_flags(parser, max_tokens=100)
    parser.add_argument("--top-logprobs", type=int, metavar="K", help="put log-probabilities into the JSON document")


def build_prompt(args: argparse.Namespace, *, has_template: bool) -> tuple[Any, Mapping[str, Any]]:
    """The request's prompt (messages or text) and template variables, as mlx-lm's generate builds them."""
    text = sys.stdin.read() if args.prompt == "-" else args.prompt.replace("\\n", "\n").replace("\\t", "\t")
    if not text:
        raise errors.EmptyPrompt
    if has_template and not args.ignore_chat_template:
        system = [] if args.system_prompt is None else [{"role": "system", "content": args.system_prompt}]
        variables = json_object("--chat-template-config", args.chat_template_config or "{}")
        return [*system, {"role": "user", "content": text}], variables
    for flag, value in (
        ("--system-prompt", args.system_prompt),
        ("--chat-template-config", args.chat_template_config),
    ):
        if value is not None:
            raise errors.InvalidValue(flag, value, "only with a model that has a chat template, and with it in use")
    return text, {}


def statistics(g: Generation) -> list[str]:
    """The lines that mlx-lm prints, and the KV scheme when it is not the native one."""
    lines = [
        f"Prompt: {g.usage.prompt_tokens} tokens, {g.timing.prefill_tok_s:.3f} tokens-per-sec",
        f"Generation: {g.usage.completion_tokens} tokens, {g.timing.decode_tok_s:.3f} tokens-per-sec",
        f"Peak memory: {g.timing.peak_bytes / 1e9:.3f} GB",
    ]
    return lines if g.plan.kv == "native" else [*lines, f"KV cache: {g.plan.kv} asked, {g.kv_status} at the end"]


def document(g: Generation) -> dict[str, Any]:
    """A generation as JSON; `taps` (arrays) stay out."""
    return {
        "text": g.text,
        "tokens": list(g.tokens),
        "finish_reason": g.finish_reason,
        "logprobs": [asdict(entry) for entry in g.logprobs],
        "usage": asdict(g.usage),
        "timing": asdict(g.timing),
        "plan": asdict(g.plan),
        "kv_status": g.kv_status,
        "caches": [asdict(layer) for layer in g.caches],
    }


def run(args: argparse.Namespace) -> int:
    sampling = sampling_params(args, seed=args.seed, top_logprobs=args.top_logprobs)
    out = Output(as_json=args.json)
    options = engine_options(args, out)
    from engine import load  # loads MLX, after the BLAS was chosen and the flags were checked

    with progress_callback() as progress:
        engine = load(args.model, progress=progress, **options)
    with engine:
        has_template = engine.tokenizer is not None and engine.tokenizer.has_template
        prompt, variables = build_prompt(args, has_template=has_template)
        handle = engine.submit(Request(prompt=prompt, sampling=sampling, template_kwargs=variables))
        out.line(RULE)
        for event in handle.events():
            out.piece(event.text)
        result, prefixes = handle.result(), engine.prefix_status()
    out.line()
    out.line(RULE)
    if not result.text:
        out.line("No text generated for this prompt")
    for line in statistics(result):
        out.line(line)
    if prefixes is not None:
        out.line(prefix_line(prefixes))
    kept = None if prefixes is None else asdict(prefixes) | {"hit_rate": prefixes.hit_rate}
    out.document(document(result) | {"prefix_cache": kept})
    return 0
