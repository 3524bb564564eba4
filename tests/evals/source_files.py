"""Small archives in the shape of the pinned ones, and a folder that pip takes for its index."""

from __future__ import annotations

import gzip
import hashlib
import io
import tarfile
import zipfile
from pathlib import Path

import pytest

from evals.sources import Source

# U+2028 stands unescaped in a JSON string; it ends no line.
ROWS = '{"id": 1, "text": "one"}\n{"id": 2, "text": "two\u2028lines"}\n'.encode()
MEMBERS = {
    "tiny_data/rows.jsonl": ROWS,
    "tiny_data/rows.jsonl.gz": gzip.compress(ROWS, mtime=0),
    "tiny_data/document.json": b'{"cases": [1, 2, 3]}',
    "tiny_data/words.txt": b"no JSON here\n",
    "tiny_data/second_line.jsonl": b'{"id": 1}\n{"id": \n',
    "tiny_data/list.jsonl": b"[1, 2]\n",
    "tiny_data/latin.jsonl": b'{"id": "\xe9"}\n',
    "tiny_data/cut.jsonl.gz": gzip.compress(ROWS, mtime=0)[:-9],
    "tiny_data/not.jsonl.gz": ROWS,
}


def source_of(path: Path) -> Source:
    """The source that pins this file."""
    content = path.read_bytes()
    return Source(
        name="tiny-data",
        requirement="tiny-data==0.1",
        filename=path.name,
        sha256=hashlib.sha256(content).hexdigest(),
        archive_bytes=len(content),
        licence="MIT",
        about="three rows",
    )


def write_wheel(folder: Path) -> Path:
    """A wheel that pip downloads, with MEMBERS inside."""
    path = folder / "tiny_data-0.1-py3-none-any.whl"
    info = "tiny_data-0.1.dist-info"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in MEMBERS.items():
            archive.writestr(name, content)
        archive.writestr(f"{info}/METADATA", "Metadata-Version: 2.1\nName: tiny-data\nVersion: 0.1\n")
        archive.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr(f"{info}/RECORD", "")
    return path


def write_source_archive(folder: Path) -> Path:
    """A source archive with the same members below its folder."""
    path = folder / "tiny_data-0.1.tar.gz"
    with tarfile.open(path, "w:gz") as archive:
        for name, content in MEMBERS.items():
            entry = tarfile.TarInfo(f"tiny_data-0.1/{name}")
            entry.size = len(content)
            archive.addfile(entry, io.BytesIO(content))
    return path


def serve(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """From here on pip finds the files of this folder and nothing else."""
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
