"""A model's name becomes a folder: a path, a built-in name or a hub id."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from engine.artifacts.builtin import BUILTIN, fetch_builtin
from engine.errors import ModelNotFound, NetworkUnavailable

# progress(label, done, total): total is None when unknown. The engine never prints.
Progress = Callable[[str, int, int | None], None]

HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*")
# What a model folder needs; code of the repository is not fetched because it is never run.
HUB_FILES = ("*.json", "model*.safetensors", "tokenizer.model", "*.tiktoken", "tiktoken.model", "*.txt", "*.jinja")


def require_model(name: str) -> None:
    """Fetches nothing. Raises ModelNotFound (it lists the built-in names) for what can be no model: neither a folder
    of one, nor a built-in name, nor of the form of a hub id."""
    path = Path(name).expanduser()
    if name and path.is_dir():
        if not (path / "config.json").is_file():
            raise ModelNotFound(f"{name}: the folder has no config.json")
        return
    if path.suffix == ".gguf" and path.is_file():
        raise ModelNotFound(f"{name} is a GGUF file; make a model folder of it: frontier convert {name} --out FOLDER")
    if name not in BUILTIN and (path.exists() or not HUB_ID.fullmatch(name)):
        known = ", ".join(BUILTIN)
        raise ModelNotFound(f"{name!r} is neither a folder, nor a hub id (org/name), nor built in ({known})")


def resolve_model(name: str, *, progress: Progress | None = None) -> Path:
    """The folder of a model; built-in and hub models are fetched first if need be.

    Raises ModelNotFound (it lists the built-in names), NetworkUnavailable, MissingTool, CorruptFile.
    """
    require_model(name)
    path = Path(name).expanduser()
    if path.is_dir():
        return path
    return fetch_builtin(name, progress=progress) if name in BUILTIN else _from_hub(name, progress)


def _from_hub(name: str, progress: Progress | None) -> Path:
    import httpx
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import (
        GatedRepoError,
        HfHubHTTPError,
        HFValidationError,
        LocalEntryNotFoundError,
        OfflineModeIsEnabled,
        RepositoryNotFoundError,
    )

    if progress is not None:
        progress(f"fetching {name}", 0, None)
    known = f"built in: {', '.join(BUILTIN)}"
    try:
        folder = snapshot_download(name, allow_patterns=list(HUB_FILES), tqdm_class=_hub_bar(name, progress))
    except GatedRepoError as error:
        raise ModelNotFound(f"{name}: the hub wants you to accept its terms and log in (hf auth login)") from error
    except (RepositoryNotFoundError, HFValidationError) as error:
        raise ModelNotFound(f"{name}: no such folder and no such model on the hub; {known}") from error
    except (LocalEntryNotFoundError, OfflineModeIsEnabled, HfHubHTTPError, httpx.HTTPError, OSError) as error:
        raise NetworkUnavailable(
            f"{name}: not a folder here, not in the hub's cache, and the hub did not answer "
            f"({type(error).__name__}); {known}"
        ) from error
    path = Path(folder)
    if not (path / "config.json").is_file():
        raise ModelNotFound(f"{name}: the hub's repository has no config.json")
    return path


def _hub_bar(name: str, progress: Progress | None) -> type[Any]:
    """A bar that draws nothing and tells `progress`; the hub's own would write to the terminal."""
    from tqdm.auto import tqdm

    class Bar(tqdm):  # type: ignore[type-arg, misc, unused-ignore]
        def __init__(self, *args: Any, **kwargs: Any) -> None:
            kwargs.pop("name", None)  # the hub's own class takes it, tqdm does not
            super().__init__(*args, **{**kwargs, "disable": True})
            self.total = kwargs.get("total") or 0
            self._bytes = kwargs.get("unit") == "B"

        def update(self, n: float | None = 1) -> None:
            self.n += n or 0
            if progress is not None and self._bytes:
                progress(f"fetching {name}", int(self.n), int(self.total) or None)

    return Bar
