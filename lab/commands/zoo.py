"""`frontier zoo`: tiny trained models, their table, and measuring again what it says."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lab.commands import example
from lab.console import Output, progress_callback, size, wide_console
from lab.flags import check_folder

if TYPE_CHECKING:
    from lab.zoo.batches import TrainingData
    from lab.zoo.recipe import Recipe

HELP = "tiny trained models: `list` shows their table, `check` measures it; `train`, `data`, `tokenizer` make them"
EXAMPLE = "frontier zoo check --quick"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The actions `list`, `check`, `train`, `data` and `tokenizer`."""
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    listed = actions.add_parser("list", help="every model, as the table has it", epilog=example("frontier zoo list"))
    listed.add_argument("--markdown", action="store_true", help="as Markdown, all that is known of each")
    check = actions.add_parser(
        "check",
        help="measure the stored weights again; exit code 1 and the claim where the table is not true",
        epilog=example("frontier zoo check llama-3m", "frontier zoo check --quick"),
    )
    check.add_argument("names", nargs="*", metavar="NAME", help="models; all of them unless named")
    check.add_argument("--quick", action="store_true", help="a part of the text and of the questions, with its own row")
    for action in (listed, check):
        action.add_argument("--table", help="another table than the one that is shipped")
    check.add_argument("--record", action="store_true", help="write what is measured into the table")
    check.add_argument(
        "--db", help="database that keeps it for the scorecard (default: FRONTIER_DB, else ./lab.sqlite)"
    )
    train = actions.add_parser("train", help="make a model again", epilog=example("frontier zoo train qwen3-1m"))
    train.add_argument("name", metavar="NAME", help="a name of `frontier zoo list`")
    train.add_argument("--out", help="the folder to make; it must not exist yet (default: NAME, here)")
    train.add_argument("--steps", type=int, help="so many steps in each stage, for a look; not the recipe's model")
    train.add_argument("--data", help="a file of `zoo data`, in place of the text: on a machine without it")
    data = actions.add_parser(
        "data", help="encode what they are trained on into one file", epilog=example("frontier zoo data --out zoo.npz")
    )
    data.add_argument("--out", default="zoo.npz", help="the file to write, a name in .npz (default: zoo.npz, here)")
    tokenizer = actions.add_parser(
        "tokenizer", help="train the tokenizer that all of them share again", epilog=example("frontier zoo tokenizer")
    )
    tokenizer.add_argument("--out", default="tokenizer", help="the folder to make (default: tokenizer, here)")
    tokenizer.add_argument("--force", action="store_true", help="write over the files of a folder that exists")
    for action in (listed, check, train, data):
        action.add_argument("--weights", default="tests/zoo", help="the folder of the zoo (default: tests/zoo)")


def run(args: argparse.Namespace) -> int:
    """Exit code 0; of `check` 1 where a claim is not true."""
    out = Output(as_json=args.json)
    actions = {"list": show, "check": check, "train": train, "data": encode, "tokenizer": tokenizer}
    return actions[args.action](args, out)


def show(args: argparse.Namespace, out: Output) -> int:
    """The table, from what is stored."""
    from rich.table import Table

    from lab.zoo.markdown import markdown
    from lab.zoo.recipe import recipes
    from lab.zoo.table import TABLE, read_table

    held = read_table(Path(args.table or TABLE))
    if args.markdown:
        out.line(markdown(recipes(), held))
        out.document(held)
        return 0
    made = Table(
        "model",
        "parameters",
        "bytes",
        "bits per byte",
        "skills, %",
        "below the bar",
        "what it is",
        box=None,
        pad_edge=False,
    )
    for name, recipe in recipes().items():
        rows = held["models"].get(name, {})
        part = " (in part)" if "quick" in rows and "full" not in rows else ""
        made.add_row(name + part, *cells(rows.get("full", rows.get("quick"))), recipe.about)
    wide_console(out).print(made)
    if "full" in held["baseline"]:
        out.line(f"bits per byte of held-out text; an order-3 byte n-gram has {held['baseline']['full']:.3f}")
    out.document(held)
    return 0


def cells(row: dict[str, Any] | None) -> tuple[str, ...]:
    """Of a row of the table: parameters, bytes, bits per byte, skills, what is below the bar."""
    if row is None:
        return ("", "", "not trained yet", "", "")
    share = " ".join(f"{skill} {100 * part:.0f}" for skill, part in row.get("skills", {}).items())
    if "repeated" in row:
        share += f" repeats {100 * row['repeated']:.0f}"
    if "guessed" in row:
        share = f"guesses {100 * row['guessed']:.0f}"
    bits = f"{row['bits_per_byte']:.3f}" if "bits_per_byte" in row else ""
    if "bits_per_byte_own" in row:
        bits = f"{row['bits_per_byte_own']:.3f} of its style, without it {row['bits_per_byte_own_of_base']:.3f}"
    return str(row.get("parameters", "")), size(row["bytes"]), bits, share, ", ".join(row["below"])


def check(args: argparse.Namespace, out: Output) -> int:
    """Measure, compare, and name each claim that is not true; every row goes into the lab's database."""
    from lab.fingerprint import take
    from lab.scorecard.zoo import ZooRun
    from lab.store import Store
    from lab.zoo.measure import SIZES, make_yardstick, measure
    from lab.zoo.table import TABLE, below_bar, perplexity, read_table, record, same, untrue
    from lab.zoo.text import read_articles

    which, weights, table = "quick" if args.quick else "full", Path(args.weights), Path(args.table or TABLE)
    held = read_table(table)
    chosen = asked(args, which, held)
    yardstick = make_yardstick(read_articles(), weights, SIZES[which])
    baseline, said, sizes = yardstick.baseline(), held["baseline"].get(which), yardstick.text()
    out.line(f"order-3 byte n-gram: {baseline:.4f} bits per byte")
    rows, wrong = {}, []
    if not args.record and not same(said, baseline, 0.0):
        wrong.append(f"the n-gram's bits per byte: the table says {said}, measured {baseline}")
    if not args.record and held.get("text", {}).get(which) != sizes:
        wrong.append(f"the held-out text: the table says {held.get('text', {}).get(which)}, it has {sizes}")
    with Store.open(args.db) as store:
        kept = ZooRun(store, take(), which, baseline)
        for recipe in chosen:
            with progress_callback() as progress:
                row = measure(recipe, weights, yardstick, progress)
            row["below"] = below_bar(recipe, row, baseline)
            rows[recipe.name] = row
            tell(recipe.name, row, out)
            found: list[str] = []
            if args.record:
                record(recipe.name, which, row, baseline, sizes, table)
            else:
                found += untrue(held["models"].get(recipe.name, {}).get(which), row, SIZES[which].items)
            kept.keep(recipe, command_of(recipe.name, args), row | {"perplexity": perplexity(row, sizes)}, found)
            wrong += [f"{recipe.name}: {line}" for line in found]
    for line in wrong:
        out.line(f"not true: {line}")
    out.document({"size": which, "baseline": baseline, "models": rows, "untrue": wrong})
    return 1 if wrong else 0


def asked(args: argparse.Namespace, which: str, held: dict[str, Any]) -> list[Recipe]:
    """The models that are named; else every claim of this size, or with --record every model that there is."""
    from lab.zoo.recipe import find_recipe, recipes

    if args.names:
        return [find_recipe(name) for name in args.names]
    chosen = [each for each in recipes().values() if each.trained]
    return [each for each in chosen if args.record or which in held["models"].get(each.name, {})]


def command_of(name: str, args: argparse.Namespace) -> str:
    """The command that measures one model again."""
    return f"frontier zoo check {name}{' --quick' if args.quick else ''} --blas {args.blas}"


def tell(name: str, row: dict[str, Any], out: Output) -> None:
    """A measured row as lines."""
    parameters, held_bytes, bits, share, below = cells(row)
    words = (
        f"{parameters} parameters" if parameters else "",
        held_bytes,
        f"{bits} bits per byte" if bits else "",
        share,
    )
    out.line(f"{name}: {', '.join(word for word in words if word)}")
    if below:
        out.line(f"  below the bar: {below}")


def train(args: argparse.Namespace, out: Output) -> int:
    """One model by its recipe, into a folder of its own."""
    from dataclasses import replace

    from engine import errors
    from lab.zoo.batches import load_data
    from lab.zoo.make import make
    from lab.zoo.recipe import find_recipe

    recipe, weights, target = find_recipe(args.name), Path(args.weights), Path(args.out or args.name)
    if target.exists():
        raise errors.InvalidValue("--out", str(target), "a path that does not exist yet")
    if not target.absolute().parent.is_dir():
        raise errors.InvalidValue("--out", str(target), "a name in an existing folder")
    if args.steps is not None:
        if args.steps < 1:
            raise errors.InvalidValue("--steps", args.steps, "an integer >= 1")
        if not recipe.stages:
            raise errors.InvalidValue("--steps", args.steps, f"absent for {recipe.name}, which is not trained")
        stages = tuple(replace(stage, steps=args.steps, seconds=None) for stage in recipe.stages)
        recipe = replace(recipe, stages=stages)
    if args.data is not None and not recipe.stages:
        raise errors.InvalidValue("--data", args.data, f"absent for {recipe.name}, which is not trained")
    data = None
    if recipe.stages:
        data = load_data(Path(args.data)) if args.data else encoded(weights, out)
        out.line(f"data sha256 {data.sha256}")

    def report(step: int, steps: int | None, loss: float) -> None:
        out.line(f"step {step} of {steps or '?'}: loss {loss:.4f} nats")

    make(recipe, weights, data, target, report)
    out.line(str(target))
    out.document({"name": recipe.name, "folder": str(target)})
    return 0


def encode(args: argparse.Namespace, out: Output) -> int:
    """What every model is trained on, in one file."""
    from engine import errors

    target = Path(args.out)
    if target.suffix != ".npz":
        raise errors.InvalidValue("--out", args.out, "a name in .npz")
    if target.exists():
        raise errors.InvalidValue("--out", args.out, "a file that does not exist yet")
    if not target.absolute().parent.is_dir():
        raise errors.InvalidValue("--out", args.out, "a name in an existing folder")
    data = encoded(Path(args.weights), out)
    data.save(target)
    out.line(f"{target}: {size(target.stat().st_size)}, data sha256 {data.sha256}")
    out.document({"file": str(target), "data_sha256": data.sha256})
    return 0


def encoded(weights: Path, out: Output) -> TrainingData:
    """The text and the rows of skills, by the tokenizer of the zoo."""
    from lab.zoo.data import make_data
    from lab.zoo.text import read_articles
    from lab.zoo.tokens import read_tokenizer

    out.line("encoding the text and packing rows of skills")
    return make_data(read_articles(), read_tokenizer(weights / "tokenizer"))


def tokenizer(args: argparse.Namespace, out: Output) -> int:
    """The shared tokenizer from the training text, and what it is."""
    from engine import errors
    from lab.zoo.text import read_articles
    from lab.zoo.tokens import MARKS, save_tokenizer, train_tokenizer

    target = Path(args.out)
    if target.exists() and not args.force:
        raise errors.InvalidValue("--out", args.out, "a folder that does not exist yet, or --force")
    check_folder("--out", target)
    articles = read_articles()
    made = train_tokenizer(articles.trained)
    target.mkdir(parents=True, exist_ok=True)
    files, tokens = save_tokenizer(made, target), made.get_vocab_size()
    out.line(f"{tokens} tokens, {len(MARKS)} of them marks, from {len(articles.trained)} articles and the skills")
    for name, digest in files.items():
        out.line(f"{target / name}: sha256 {digest}")
    out.document({"folder": str(target), "tokens": tokens, "articles": len(articles.trained), "files": files})
    return 0
