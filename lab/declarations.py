"""The files of experiments: where they lie, and whether one can be read at all before the composer is asked."""

from __future__ import annotations

from pathlib import Path

import yaml

from engine import errors

INSTALLED = Path(__file__).resolve().parents[1] / "experiments"


class BadConfig(errors.FrontierError):
    """A file or override that does not fit the schema; the message is the composer's own, in one line."""


def experiments_folder(folder: Path | None = None) -> Path:
    """`folder`, else ./experiments, else the installed ones. Raises `BadConfig` where none exists."""
    choices = [folder] if folder else [Path.cwd() / "experiments", INSTALLED]
    for choice in choices:
        if choice.is_dir():
            return choice
    raise BadConfig(f"no folder of experiments at {choices[0]}; run where experiments/ is")


def names(folder: Path | None = None) -> list[str]:
    """The declared experiments, by file name."""
    return sorted(path.stem for path in experiments_folder(folder).glob("*.yaml"))


def check_file(path: Path) -> str:
    """Read a declaration once without the composer, which takes a mapping in UTF-8 for granted.

    Returns the name of the workload that it is measured under, "" for its own. Raises `BadConfig`.
    """
    if not path.stem.replace("_", "").replace("-", "").isalnum():
        raise BadConfig(f"{path}: the name of an experiment is letters, digits, - and _")
    try:
        document = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise BadConfig(f"{path}: {' '.join(str(error).split())}") from error
    if not isinstance(document, dict) or not all(isinstance(key, str) for key in document):
        raise BadConfig(f"{path}: not a mapping of the fields of an experiment")
    if "defaults" in document:
        raise BadConfig(f"{path}: defaults: an experiment is one file, composed of no other")
    workload = document.get("workload")
    return str(workload.get("name") or "") if isinstance(workload, dict) else ""
