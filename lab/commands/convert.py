"""`frontier convert`: a GGUF file, a built-in model or a quantised folder -> a model folder that mlx-lm reads too."""

from __future__ import annotations

import argparse
import os
import shutil
import tempfile
from pathlib import Path

from engine import errors
from lab.console import Output, progress_callback, size

HELP = "turn a GGUF file or a model into a model folder, unpacked to float32 if asked"
EXAMPLE = "frontier convert smollm2-135m-instruct --dequantize --out smollm2-fp32"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("source", help="a .gguf file, a model folder, a built-in name or a hub id")
    parser.add_argument("--out", required=True, help="the folder to make; it must not exist yet")
    parser.add_argument("--dequantize", "-d", action="store_true", help="unpack every weight to float32")


def _copy(source: Path, target: Path) -> Path:
    """A copy that is there whole or not at all."""
    partial = Path(tempfile.mkdtemp(dir=target.parent, prefix=f".{target.name}."))
    try:
        shutil.copytree(source, partial, dirs_exist_ok=True)
        partial.chmod(0o755)  # mkdtemp's own is private
        os.replace(partial, target)
    except BaseException:
        shutil.rmtree(partial)
        raise
    return target


def _check(source: str, target: Path, *, dequantize: bool) -> None:
    if target.exists():
        raise errors.InvalidValue("--out", str(target), "a folder that does not exist yet")
    if not target.parent.is_dir():
        raise errors.InvalidValue("--out", str(target), f"a name in an existing folder; {target.parent} is none")
    if source.endswith(".gguf") and not Path(source).is_file():
        raise errors.ModelNotFound(f"{source}: no such file")
    if Path(source).is_dir() and not dequantize:
        raise errors.InvalidValue("source", source, "a folder only with --dequantize; it is a model folder already")


def run(args: argparse.Namespace) -> int:
    target = Path(args.out).absolute()
    _check(args.source, target, dequantize=args.dequantize)
    from engine import convert_gguf, dequantize_folder, resolve_model  # they load MLX

    with progress_callback() as progress:
        if Path(args.source).is_file():
            convert_gguf(Path(args.source), target, dequantize=args.dequantize, progress=progress)
        else:
            folder = resolve_model(args.source, progress=progress)
            if args.dequantize:
                dequantize_folder(folder, target, progress=progress)
            else:
                _copy(folder, target)
    held = sum(file.stat().st_size for file in target.iterdir())
    out = Output(as_json=args.json)
    out.line(f"{target}   {size(held)}")
    out.document({"folder": str(target), "bytes": held, "source": args.source, "dequantized": args.dequantize})
    return 0
