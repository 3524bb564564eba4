"""`frontier lab new | promote | delete | extend`: the steps of an experiment's life that change files and rows."""

from __future__ import annotations

import argparse
import sys
from datetime import UTC, date, datetime
from typing import TYPE_CHECKING, Any

from lab.commands import example
from lab.console import Output

if TYPE_CHECKING:
    from lab.lifecycle import Plan

GUARDRAILS = ("decode_tok_s", "prefill_tok_s", "ttft_ms", "peak_bytes")
TARGETS = ("linux-x86_64-cpu", "darwin-arm64", "linux-x86_64-cuda")
WORKLOAD = ("prompt_tokens", "max_tokens", "kl_length", "kl_sequences")
QUESTIONS = {
    "hypothesis": "hypothesis, in terms of the frontier's axes",
    "primary": "primary metric",
    "delta": "smallest gain that matters (0.1 is 10 %; machine: what this class of machines can resolve)",
    "expires": "expires on (a day like 2026-12-30; 30 days after today)",
}


def add_parsers(actions: Any) -> None:
    """The parsers of these actions."""
    new = actions.add_parser("new", help="declare an experiment; of a file that is there, enter its row")
    new.add_argument("name")
    new.add_argument("--hypothesis", metavar="TEXT", help="what moves the frontier, on which axis, at which price")
    new.add_argument("--primary", metavar="METRIC", help="the one metric that decides")
    new.add_argument("--delta", metavar="NUMBER", help="relative gain that matters, or machine")
    new.add_argument("--expires", metavar="DATE", help="30 days after today")
    new.add_argument("--class", dest="quality_class", default="L", metavar="CLASS", help="L (default), Q8 or QT")
    for arm in ("candidate", "base"):
        new.add_argument(
            f"--{arm}", action="append", default=[], metavar="NAME=VALUE", help=f"a lever of the {arm}; repeatable"
        )
    new.add_argument("--guardrail", action="append", metavar="METRIC", help="repeatable (default: all timed, peak)")
    new.add_argument("--target", action="append", metavar="KEY", help="beginning of a machine key; repeatable")
    new.add_argument("--model", default="", metavar="NAME", help="its own model (default: the lab's)")
    sizes = {
        "prompt-tokens": "tokens of the prompt",
        "max-tokens": "tokens to make",
        "kl-length": "tokens of a KL text",
    }
    for size, what in (sizes | {"kl-sequences": "KL texts at most"}).items():
        new.add_argument(f"--{size}", type=int, metavar="N", help=f"{what}, its own (default: the profile's)")
    new.add_argument("--owner", default="mlx-frontier", metavar="NAME")
    promote = actions.add_parser("promote", help="make a winner the default on its machine key (--yes does it)")
    promote.add_argument("name")
    promote.add_argument("--machine", metavar="KEY", help="where it won, if in several places")
    delete = actions.add_parser(
        "delete", help="end an experiment that won nowhere, and keep its numbers (--yes does it)"
    )
    delete.add_argument("name")
    extend = actions.add_parser("extend", help="14 days more, once (--yes does it)")
    extend.add_argument("name")
    extend.add_argument("--reason", required=True, metavar="TEXT")
    declared = '--hypothesis "..." --primary kv_bytes --delta 0.3 --expires 2026-12-30 --candidate kv=kv6 --class QT'
    new.epilog = example(f"frontier lab new kv6 {declared}")
    extend.epilog = example('frontier lab extend kv8 --reason "the quiet machine was away"')
    for step, name in ((promote, "promote"), (delete, "delete")):
        step.epilog = example(f"frontier lab {name} kv8", f"frontier lab {name} kv8 --yes")
    for step in (promote, delete, extend):
        step.add_argument("--yes", action="store_true", help="do it; without, only say what would be done")


def today() -> date:
    return datetime.now(UTC).date()


def new_one(args: argparse.Namespace, out: Output) -> int:
    """Write experiments/NAME.yaml and its row. A file that is there gets its row, if nothing else was said."""
    from engine import errors
    from lab.config import compose, names
    from lab.declare import Declaration, add_new
    from lab.record import declare
    from lab.store import Store
    from lab.tree import Tree

    said = {name: vars(args)[name] for name in QUESTIONS}
    if args.name in names() and not any(said.values()):
        idle = {"quality_class": "L", "owner": "mlx-frontier", "model": "", "candidate": [], "base": []}
        for name, default in (idle | dict.fromkeys(("guardrail", "target", *WORKLOAD))).items():
            if vars(args)[name] != default:
                flag = "--class" if name == "quality_class" else f"--{name.replace('_', '-')}"
                raise errors.InvalidValue(flag, vars(args)[name], f"absent: experiments/{args.name}.yaml says it")
        conf, what = compose(args.name), "has a row now"
    else:
        if sys.stdin.isatty() and not args.json:
            said = {name: value or input(f"{QUESTIONS[name]}: ") for name, value in said.items()}
        guardrails = [m for m in GUARDRAILS if m != said["primary"]] if args.guardrail is None else args.guardrail
        declaration = Declaration(
            name=args.name,
            quality_class=args.quality_class,
            owner=args.owner,
            candidate=args.candidate,
            base=args.base,
            guardrails=guardrails,
            targets=args.target or TARGETS,
            model=args.model,
            workload={name: vars(args)[name] for name in WORKLOAD},
            **said,
        )
        conf, what = add_new(declaration, Tree.here(), today()), "is declared"
    with Store.open() as store:
        declare(store, conf)
    e = conf.experiment
    out.line(f"experiments/{e.name}.yaml {what}: {e.kind}, lever {', '.join(e.lever)}, expires {e.expires_on}")
    out.line(f"next: frontier lab power {e.name}, frontier lab run {e.name}")
    out.document({"experiment": e.name, "kind": e.kind, "lever": list(e.lever), "expires_on": e.expires_on})
    return 0


def promote_one(args: argparse.Namespace, out: Output) -> int:
    from lab.lifecycle import plan_promote

    return _step(args, out, lambda conf, store, tree: plan_promote(conf, store, tree, today(), args.machine))


def delete_one(args: argparse.Namespace, out: Output) -> int:
    from lab.lifecycle import plan_delete

    return _step(args, out, lambda conf, store, tree: plan_delete(conf, store, tree, today()))


def _step(args: argparse.Namespace, out: Output, plan_of: Any) -> int:
    """Plan, print the evidence and what changes; do it with --yes."""
    from lab.config import compose
    from lab.lifecycle import NotDecided, act
    from lab.store import Store, existing, exists
    from lab.tree import Tree

    tree, conf = Tree.here(), compose(args.name)
    store = Store.open() if args.yes and exists() else existing()
    if store is None:
        raise NotDecided(f"{args.name}: there is no database and so no decision; run it: frontier lab run {args.name}")
    with store:
        plan: Plan = plan_of(conf, store, tree)
        for row in plan.evidence:
            out.line(f"evidence: {row.table} {row.id}: {row.words}")
        for word in (*plan.words, *plan.notes):
            out.line(f"- {word}")
        if args.yes:
            act(plan, store, tree)
    out.line(f"{plan.name} is {plan.what}; reports/log.md has its numbers" if args.yes else "dry run; --yes does it")
    out.document(
        {
            "experiment": plan.name,
            "what": plan.what,
            "done": args.yes,
            "machine": plan.machine_key or None,
            "changes": list(plan.words),
            "notes": list(plan.notes),
            "evidence": [row.as_dict() for row in plan.evidence],
        }
    )
    return 0


def extend_one(args: argparse.Namespace, out: Output) -> int:
    """Move the expiry in the file, and in the row where there is one."""
    from lab.config import compose
    from lab.lifecycle import plan_extend, write_declaration
    from lab.record import declare
    from lab.store import Store, exists
    from lab.tree import Tree

    tree, conf = Tree.here(), compose(args.name)
    text, until = plan_extend(conf, tree, today(), args.reason)
    out.line(f"experiments/{args.name}.yaml: expires_on {conf.experiment.expires_on} becomes {until}: {args.reason}")
    if args.yes:
        extended = write_declaration(tree, args.name, text)
        if exists():
            with Store.open() as store:
                declare(store, extended)
    out.line(f"{args.name} is extended" if args.yes else "dry run; --yes does it")
    out.document({"experiment": args.name, "expires_on": until, "reason": args.reason, "done": args.yes})
    return 0


ACTIONS = {"new": new_one, "promote": promote_one, "delete": delete_one, "extend": extend_one}
