"""What is shared names no folder, user or host."""

from __future__ import annotations

import getpass
import re
import socket
from collections.abc import Mapping
from typing import Any

URL = re.compile(r"(https?://)(?:[^\s/@'\"]+@)?([^\s'\"]*)")
_ROOT = r"(?:file:)?(?:[A-Za-z]:|~\w*|\.{1,2})?[/\\]"
QUOTED = re.compile(rf"(?<=['\"]){_ROOT}[^'\"\n]*(?=['\"])")
PATH = re.compile(rf"(?<![\w.~/\\]){_ROOT}[^\s:'\"]*")


def scrub(value: Any) -> Any:
    """The same document without folders, user and host names: a path becomes its last part."""
    if isinstance(value, Mapping):
        return {scrub(str(key)): scrub(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [scrub(item) for item in value]
    if not isinstance(value, str):
        return value
    pieces, end = list[str](), 0
    for url in URL.finditer(value):
        pieces += [_without_folders(value[end : url.start()]), url[1] + url[2]]
        end = url.end()
    text = "".join([*pieces, _without_folders(value[end:])])
    for name, instead in ((_user(), "user"), (socket.gethostname(), "host")):
        if name:
            text = re.sub(rf"(?<!\w){re.escape(name)}(?!\w)", instead, text)
    return text


def _without_folders(text: str) -> str:
    return PATH.sub(_last, QUOTED.sub(_last, text))


def _last(found: re.Match[str]) -> str:
    """The last part of a path; of one that has no other, which may be a name, nothing."""
    parts = [part for part in re.split(r"[/\\]+", found[0]) if part.strip(".~") and not part.endswith(":")]
    return parts[-1] if len(parts) > 1 else "folder"


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # an account without a name
        return ""
