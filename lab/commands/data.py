"""`frontier data`: fetch, verify and list the archives that evaluation data is read from."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lab.commands import example
from lab.console import Output, progress_callback, size

if TYPE_CHECKING:
    from evals.sources import Source

HELP = "evaluation data: `get` fetches and verifies its archives, `list` says what is here and under which licence"
EXAMPLE = "frontier data get --suite smoke"
SUITES = ("smoke", "nightly", "full")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The actions `get` and `list`."""
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    get = actions.add_parser(
        "get",
        help="fetch what a suite needs, or one archive; nothing is installed or run",
        epilog=example("frontier data get --suite smoke", "frontier data get --source bfcl-eval"),
    )
    what = get.add_mutually_exclusive_group(required=True)
    what.add_argument(
        "--suite",
        choices=SUITES,
        help="what the tasks of a tier read; a larger tier asks more items out of the same archives",
    )
    what.add_argument("--source", metavar="NAME", help="one archive: a name of `frontier data list`")
    actions.add_parser(
        "list",
        help="every archive: version, size, sha256, licence of the data, tasks that read it, where it is",
        epilog=example("frontier data list", "frontier data list --json"),
    )


def run(args: argparse.Namespace) -> int:
    """Exit code 0; a source that cannot be had is an error."""
    out = Output(as_json=args.json)
    return list_sources(out) if args.action == "list" else get(args.suite, args.source, out)


def readers() -> dict[str, list[str]]:
    """Source name -> names of the tasks that read it."""
    from evals.sources import SOURCES
    from evals.tasks import TASKS, load_task

    found: dict[str, list[str]] = {name: [] for name in SOURCES}
    for name in TASKS:
        source = load_task(name).source
        if source is not None:
            found[source.name].append(name)
    return found


def described_tasks(names: Iterable[str]) -> list[dict[str, Any]]:
    """Tasks as JSON. clustered_by: what items of a cluster share, "" where each stands alone."""
    from evals.tasks import load_task

    found = []
    for name in names:
        task = load_task(name)
        found.append({"name": name, "version": task.version, "clustered_by": task.clustered_by})
    return found


def told(task: Mapping[str, Any]) -> str:
    """A task for people."""
    cluster = f" (clusters: {task['clustered_by']})" if task["clustered_by"] else ""
    return f"{task['name']} v{task['version']}{cluster}"


def describe(source: Source, tasks: list[str]) -> dict[str, Any]:
    """One source as JSON. state: cached, not fetched or damaged; why: of the last."""
    from engine import archive_path, errors
    from evals.sources import cached

    state, why = "not fetched", None
    try:
        if cached(source) is not None:
            state = "cached"
    except errors.CorruptFile as error:
        state, why = "damaged", str(error)
    return {
        "name": source.name,
        "version": source.version,
        "bytes": source.archive_bytes,
        "sha256": source.sha256,
        "licence": source.licence,
        "about": source.about,
        "tasks": tasks,
        "state": state,
        "why": why,
        "path": str(archive_path(source)),
    }


def place(path: str | Path) -> str:
    """A path for people: ~ stands for the home folder."""
    home = Path.home()
    return f"~/{Path(path).relative_to(home)}" if Path(path).is_relative_to(home) else str(path)


def list_sources(out: Output) -> int:
    """What is pinned, and what of it is here."""
    from evals.sources import SOURCES, get_command
    from evals.tasks import TASKS

    used = readers()
    rows = [describe(source, used[name]) for name, source in SOURCES.items()]
    made = described_tasks(sorted(set(TASKS) - {name for names in used.values() for name in names}))
    for row in rows:
        command = get_command(SOURCES[row["name"]])
        out.line(f"{row['name']} {row['version']}   {size(row['bytes'])}   {row['state']}")
        out.line(f"  {row['about']}")
        out.line(f"  licence of the data: {row['licence']}")
        out.line(f"  sha256: {row['sha256']}")
        out.line(f"  read by: {', '.join(map(told, described_tasks(row['tasks']))) or 'no task: texts of frontier kl'}")
        out.line(f"  {row['why'] or (place(row['path']) if row['state'] == 'cached' else f'not here; run: {command}')}")
    here = [row for row in rows if row["state"] == "cached"]
    out.line(f"{len(here)} of {len(rows)} archives here, {size(sum(row['bytes'] for row in here))}")
    out.line(f"made here, from seeds: {', '.join(map(told, made)) or 'nothing'}")
    details = [task for row in rows for task in described_tasks(row["tasks"])]
    out.document({"sources": rows, "tasks": [*details, *made]})
    return 0


def chosen(suite: str | None, name: str | None) -> list[Source]:
    """The named source, or all that tasks of the suite read. Raises `UnknownField` for another name."""
    from engine import errors
    from evals.sources import SOURCES
    from evals.tiers import TIERS

    if suite is not None:
        asked, used = set(TIERS[suite]), readers()
        return [source for source in SOURCES.values() if asked & set(used[source.name])]
    source = SOURCES.get(name or "")
    if source is None:
        raise errors.UnknownField("--source", str(name), SOURCES)
    return [source]


def get(suite: str | None, name: str | None, out: Output) -> int:
    """Fetch one after the other; what is here already is verified and kept."""
    from evals.sources import SOURCES, fetch, get_command

    sources = chosen(suite, name)
    if suite is not None:
        held = size(sum(source.archive_bytes for source in sources))
        out.line(f"{suite}: {len(sources)} archives, {held}, whole data sets whatever the number of items")
    rows = []
    for source in sources:
        before = describe(source, [])["state"]
        out.line(f"{source.name} {source.version}   {size(source.archive_bytes)}   {before}")
        out.line(f"  licence of the data: {source.licence}")
        with progress_callback() as progress:
            path = fetch(source, progress)
        out.line(f"  {'cached' if before == 'cached' else 'fetched'}, sha256 fits: {place(path)}")
        rows.append({"name": source.name, "before": before, "bytes": source.archive_bytes, "path": str(path)})
    if suite is not None:
        for source in SOURCES.values():
            if source not in sources:
                out.line(f"not of {suite}: {source.name} ({size(source.archive_bytes)}); {get_command(source)}")
    out.document({"suite": suite, "sources": rows})
    return 0
