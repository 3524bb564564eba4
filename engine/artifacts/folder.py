"""Writing model folders in mlx-lm's format: whole or not at all."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import mlx.core as mx

from engine.errors import InvalidValue


def write_model(folder: Path, arrays: dict[str, mx.array], config: Mapping[str, Any]) -> None:
    """model.safetensors and config.json into an existing folder."""
    mx.save_safetensors(str(folder / "model.safetensors"), arrays, metadata={"format": "mlx"})
    text = json.dumps(config, indent=2, sort_keys=True, ensure_ascii=False)
    (folder / "config.json").write_text(text + "\n", encoding="utf-8")


@contextmanager
def new_folder(target: Path) -> Iterator[Path]:
    """A folder under a temporary name, renamed to `target` if the block succeeds and removed if it does not.

    Raises `InvalidValue` where the target exists or has no parent folder.
    """
    target = Path(os.path.abspath(target))
    if target.exists():
        raise InvalidValue("target", str(target), "a path that does not exist yet")
    if not target.parent.is_dir():
        raise InvalidValue("target", str(target), f"a name in an existing folder; {target.parent} is none")
    partial = Path(tempfile.mkdtemp(dir=target.parent, prefix=f".{target.name}."))
    try:
        yield partial
        for path in partial.iterdir():
            with path.open("rb") as f:
                os.fsync(f.fileno())
        partial.chmod(0o755)  # mkdtemp's own is private
        os.replace(partial, target)
    except BaseException:
        shutil.rmtree(partial)
        raise
