"""What is shared names no folder, user or host."""

from __future__ import annotations

import getpass
import re
import socket
from collections.abc import Mapping
from typing import Any

PATH = re.compile(r"(?<![\w.:/])/(?:[^\s/:'\"]+/)+([^\s/:'\"]*)|[A-Za-z]:\\(?:[^\s\\]+\\)+([^\s\\]*)")


def scrub(value: Any) -> Any:
    """The same document without folders, user and host names: a path becomes its last part."""
    if isinstance(value, Mapping):
        return {scrub(str(key)): scrub(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [scrub(item) for item in value]
    if not isinstance(value, str):
        return value
    text = PATH.sub(lambda found: found[1] or found[2] or "folder", value)
    for name, instead in ((_user(), "user"), (socket.gethostname(), "host")):
        if name:
            text = re.sub(rf"(?<!\w){re.escape(name)}(?!\w)", instead, text)
    return text


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # an account without a name
        return ""
