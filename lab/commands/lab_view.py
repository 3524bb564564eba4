"""`frontier lab list | show | power | audit`: what is declared, what was found, what is wrong. They change nothing."""

from __future__ import annotations

import argparse
from datetime import UTC, date, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lab.commands import example
from lab.console import Output, wide_console
from lab.flags import check_folder

if TYPE_CHECKING:
    from lab.config import LabConf
    from lab.store import Store


def add_parsers(actions: Any) -> None:
    """The parsers of these actions."""
    listed = actions.add_parser(
        "list", help="state, days to expiry and last verdict that counts; exit code 1 where a file is bad"
    )
    show = actions.add_parser("show", help="declaration, sessions and decisions of one experiment, and its figures")
    show.add_argument("name")
    show.add_argument(
        "--out", type=Path, default=Path("reports/experiments"), help="of figures (default: reports/experiments)"
    )
    audit = actions.add_parser(
        "audit", help="exit code 1 for what is overdue (a decision, a removal, a row), and for a bad file"
    )
    audit.add_argument("--as-of", metavar="DATE", help="judge as of this day (default: today)")
    power = actions.add_parser("power", help="the smallest effect each look would find, from the last A/A")
    power.add_argument("name")
    loads = actions.add_parser("workloads", help="what a sample can ask of an arm, by name, with token counts")
    loads.epilog = example("frontier lab workloads")
    lines = {"list": listed, "show kv8": show, "audit --as-of 2026-12-29": audit, "power kv8": power}
    for line, parser in lines.items():
        parser.epilog = example(f"frontier lab {line}")


def open_store(out: Output) -> Store | None:
    """The database, if there is one, to be read; reading never makes or changes it. Raises `lab.store.NoDatabase` where
    FRONTIER_DB names one that does not exist."""
    from lab import store

    found = store.existing()
    if found is None:
        out.line(f"no database yet at {store.place()}: nothing was run")
    return found


def status_of(conf: LabConf, store: Store | None, today: date) -> dict[str, Any]:
    """One experiment in a row, by the decisions that count for what is declared. `verdicts`: the last of each machine
    key; `last_verdict`: the newest."""
    from lab.declared import EXPLORE
    from lab.evidence import standing
    from lab.targets import latest

    e = conf.experiment
    row = store.experiment(e.name) if store else None
    found = standing(store, conf) if store else None
    decisions = found.counts if found else ()
    purposes = [session.purpose for session in store.sessions(e.name)] if store else []
    last = decisions[-1] if decisions else None
    return {
        "name": e.name,
        "state": state_of(row.state if row else "declared", [each.verdict for each in latest(decisions).values()]),
        "class": e.quality_class,
        "kind": e.kind,
        "lever": list(e.lever),
        "primary": e.primary,
        "days_to_expiry": (date.fromisoformat(e.expires_on) - today).days,
        "sessions": len(purposes) - purposes.count(EXPLORE),
        "exploratory": purposes.count(EXPLORE),
        "last_verdict": last.verdict if last else None,
        "last_row": last.rule_row if last else None,
        "machine": last.machine_key if last else None,
        "does_not_count": list(found.left_out) if found else [],
        "verdicts": {key: each.verdict for key, each in latest(decisions).items()},
    }


def state_of(stored: str, verdicts: list[str]) -> str:
    """A candidate that may only be asked for is "opt-in (expiring)" until it is promoted or deleted."""
    opted = stored == "measuring" and any(verdict.startswith("opt-in") for verdict in verdicts)
    return "opt-in (expiring)" if opted else stored


def list_all(args: argparse.Namespace, out: Output) -> int:
    """Expiries of today are warnings here, never failures. Exit code 1 when a file cannot be read."""
    from rich.table import Table

    from lab.config import compose_all

    store, today = open_store(out), datetime.now(UTC).date()
    found, wrong = compose_all()
    rows = [status_of(conf, store, today) for conf in found.values()]
    if store:
        store.close()
    table = Table(box=None)
    for column in ("experiment", "state", "class", "primary", "days to expiry", "sessions", "last verdict"):
        table.add_column(column)
    for r in rows:
        days = str(r["days_to_expiry"]) if r["days_to_expiry"] >= 0 else f"expired {-r['days_to_expiry']} days ago"
        verdict = f"row {r['last_row']}: {r['last_verdict']}" if r["last_verdict"] else "none"
        table.add_row(r["name"], r["state"], r["class"], r["primary"], days, str(r["sessions"]), verdict)
    for name in wrong:
        table.add_row(name, "cannot be read", "–", "–", "–", "–", "see below")
    wide_console(out).print(table)
    for name, error in wrong.items():
        out.line(f"experiments/{name}.yaml cannot be read: {error}")
    unread = [{"name": name, "state": "cannot be read", "error": str(error)} for name, error in wrong.items()]
    out.document({"experiments": [*rows, *unread]})
    return 1 if wrong else 0


def show_one(args: argparse.Namespace, out: Output) -> int:
    """The declaration, what the database holds of it, and a figure of each session that came to an A/B."""
    from lab.config import compose
    from lab.evidence import Events, overrides_of
    from lab.grounds import gather
    from lab.launches import draw_launches, read_ratios

    conf = compose(args.name)
    e = conf.experiment
    lines = declaration_lines(conf)
    sessions: list[dict[str, Any]] = []
    decisions: list[dict[str, Any]] = []
    store = open_store(out)
    status = status_of(conf, store, datetime.now(UTC).date())
    if store:
        with store:
            if store.sessions(e.name):
                check_folder("--out", args.out)
            for s in store.sessions(e.name):
                outcome = store.outcome(s.id)
                entry: dict[str, Any] = {"session": s.uid, "profile": s.profile, "started": s.started}
                entry["outcome"] = outcome
                lines.append(f"session {s.uid}, {s.profile}, {s.purpose}, {outcome}")
                entry |= {"purpose": s.purpose, "otherwise": list(overrides_of(store, s))}
                if entry["otherwise"]:
                    explored = Events.of(store, s.id).last("explored") or {"row": None, "verdict": "no verdict"}
                    entry["explored"] = {"row": explored["row"], "verdict": explored["verdict"]}
                    lines.append(f"  exploratory, counts for nothing: {'; '.join(entry['otherwise'])}")
                    lines.append(f"  it would be row {explored['row']}: {explored['verdict']}")
                found = read_ratios(store, s.id, conf.delta)
                if found:
                    title = f"{e.name}, session {s.uid} ({s.profile})"
                    drawn = draw_launches(found, conf.delta, title, args.out / e.name / s.uid)
                    entry["figures"] = [str(path) for path in drawn]
                    lines += [f"  {each}" for each in map(launch_words, found)]
                    lines.append(f"  figure: {drawn[0]}, {drawn[1].name}")
                sessions.append(entry)
            for d in store.decisions(e.name):
                rows = gather(store, [d])
                entry = {"at": d.at, "machine": d.machine_key, "row": d.rule_row, "verdict": d.verdict}
                decisions.append(entry | {"reasons": d.reasons, "evidence": [row.as_dict() for row in rows]})
                lines.append(f"decision {d.at} on {d.machine_key}: row {d.rule_row}, {d.verdict}")
                lines += [f"  - {reason}" for reason in d.reasons]
                lines += [f"  {row.table} {row.id}: {row.words}" for row in rows[1:]]
    lines += [f"does not count: {why}" for why in status["does_not_count"]]
    lines.append("no session yet" if not sessions else f"{len(sessions)} sessions, {len(decisions)} decisions")
    for line in lines:
        out.line(line)
    if sessions:
        report = args.out / e.name / "show.txt"
        report.parent.mkdir(parents=True, exist_ok=True)
        report.write_text("\n".join(lines) + "\n", encoding="utf-8")
        out.line(f"report: {report}")
    out.document({**status, "sessions": sessions, "decisions": decisions})
    return 0


def declaration_lines(conf: LabConf) -> list[str]:
    """What was declared, for people."""
    from lab.arms import ArmConf
    from lab.workloads import sizes_words

    e, default = conf.experiment, ArmConf()
    lines = [
        f"{e.name}: {e.hypothesis.strip()}",
        f"{e.kind}, class {e.quality_class}, primary {e.primary} by {conf.delta:g}, "
        f"guardrails {', '.join(e.guardrails) or 'none'}",
    ]
    for role, arm in (("base", e.base), ("candidate", e.candidate)):
        named = ("stack", *e.lever)
        shown = [f"{k}={v}" for k, v in arm.__dict__.items() if k in named or v != default.__dict__[k]]
        lines.append(f"{role}: {', '.join(shown)}")
    sizes = sizes_words(conf.workload, conf.profile.prompt_tokens, conf.profile.max_tokens)
    lines.append(
        f"model {conf.model}, workload {conf.workload.name}, samples of {sizes} in the {conf.profile.name} profile"
    )
    lines.append(f"declared {e.declared_on} by {e.owner}, expires {e.expires_on}, targets {', '.join(e.targets)}")
    if e.extension_reason:
        lines.append(f"extended once: {e.extension_reason}")
    return lines


def launch_words(found: Any) -> str:
    """`decode_tok_s: +1.2 % (-0.4 % to +2.9 %); launches +1.0 %, +1.4 %`."""
    from lab.judge import percent

    launches = ", ".join(percent(ratio) for ratio in found.ratios)
    span = f"{percent(found.low)} to {percent(found.high)}"
    return f"{found.metric}: {percent(found.estimate)} ({span}); launches {launches}"


def audit_all(args: argparse.Namespace, out: Output) -> int:
    """Exit code 1 when something is wrong as of the day."""
    from lab.audit import audit, parse_day

    today = parse_day(args.as_of) if args.as_of else datetime.now(UTC).date()
    store = open_store(out)
    problems, warnings = audit(store, today)
    if store:
        store.close()
    for text in warnings:
        out.line(f"warning: {text}")
    for text in problems:
        out.line(f"problem: {text}")
    out.line(f"audit as of {today}: {len(problems)} problems, {len(warnings)} warnings")
    out.document({"as_of": str(today), "problems": problems, "warnings": warnings})
    return 1 if problems else 0


def power_of(args: argparse.Namespace, out: Output) -> int:
    """From the last A/A with at least two launches; without one, from the machine class's limit, and it says so."""
    from lab.audit import power
    from lab.config import compose

    conf = compose(args.name)
    store = open_store(out)
    rows = power(conf, store)
    if store:
        store.close()
    for row in rows:
        found = "no finite effect" if row["mde"] is None else f"{100 * row['mde']:.1f} %"
        out.line(f"{row['metric']}: {row['quads']} quads find {found} (sd {100 * row['sd']:.1f} %, {row['from']})")
    if not rows:
        out.line(f"{args.name} has no timed metric: counted ones compare exactly")
    out.document({"experiment": args.name, "power": rows})
    return 0


def list_workloads(_args: argparse.Namespace, out: Output) -> int:
    """Every workload with its sizes; those of `own` are the full profile's."""
    from rich.table import Table

    from lab.workloads import names, read_workload, sizes_words, tokens_of_sample, tokens_of_session

    table = Table(box=None)
    for column in ("workload", "sizes", "tokens in", "tokens out", "what"):
        table.add_column(column, no_wrap=column == "workload", justify="right" if "tokens" in column else "left")
    rows = []
    for name in names():
        load, prompt_tokens, max_tokens = read_workload(name)
        counts = tokens_of_sample(load, prompt_tokens), max_tokens * load.rows
        table.add_row(name, sizes_words(load, prompt_tokens, max_tokens), *map(str, counts), load.about)
        rows.append(
            {
                **load.__dict__,
                "prompt_tokens": prompt_tokens,
                "max_tokens": max_tokens,
                "tokens_in": counts[0],
                "tokens_out": counts[1],
                "tokens_of_session": tokens_of_session(load, prompt_tokens),
            }
        )
    wide_console(out).print(table)
    out.line("frontier lab run NAME workload=WORKLOAD, frontier bench workload WORKLOAD")
    out.document({"workloads": rows})
    return 0


ACTIONS = {
    "list": list_all,
    "show": show_one,
    "audit": audit_all,
    "power": power_of,
    "workloads": list_workloads,
}
