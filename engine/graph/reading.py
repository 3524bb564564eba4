"""A folder's config.json becomes a graph: its profile, its spec, and what of the config nobody read. No weights."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from engine.artifacts.checkpoint import read_config
from engine.artifacts.profile import Profile, resolve_profile
from engine.artifacts.unread import Unread, find_unread
from engine.graph.families import FAMILIES, build_spec
from engine.graph.families.common import Config
from engine.graph.spec import ArchSpec


@dataclass(frozen=True)
class Reading:
    """What a folder resolves to. `unread.check` raises where loading must refuse the config."""

    path: Path
    config: Mapping[str, Any]
    profile: Profile
    spec: ArchSpec
    unread: Unread


def read_architecture(path: Path, profile: str = "auto") -> Reading:
    """Resolve the profile of a folder and have its family read the config.

    Raises ModelNotFound, CorruptFile, ProfileMismatch, UnknownModelType, UnsupportedConfig, InvalidValue.
    """
    config = read_config(path)
    found = resolve_profile(path, config, FAMILIES, profile)
    read = Config({**config, "model_type": found.family})
    spec = build_spec(read)
    return Reading(path, config, found, spec, find_unread(config, read.seen, strict=found.kind == "universal"))
