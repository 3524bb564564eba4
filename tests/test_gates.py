"""The house rules as gates. Each gate is a function of source text, and is shown to catch a violation."""

from __future__ import annotations

import ast
import importlib
import re
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

import engine

ROOT = Path(__file__).resolve().parents[1]
MAX_LINES = 400
TOP_LEVEL = {
    "engine", "oracles", "evals", "lab", "goldens", "experiments", "reports", "tests",
    ".ci", ".gitignore", "LICENSE", "Makefile", "README.md", "pyproject.toml", "requirements.lock",
}  # fmt: skip

# Inside engine: a layer may import itself and earlier ones.
LAYERS = (
    ("types", "errors"),
    ("levers",),
    ("config",),
    ("backend",),
    ("artifacts",),
    ("kv",),
    ("graph", "adapters", "quantize"),
    ("sample",),
    ("method", "store"),
    ("sched",),
    ("api",),
    ("serve",),
)
RANK = {name: rank for rank, names in enumerate(LAYERS) for name in names} | {"train": 6}
PACKAGES = ("engine", "oracles", "evals", "lab")  # each may import itself and earlier ones
ORACLE_LIBRARIES = ("mlx_lm", "optiq")


@cache
def parsed(source: str) -> ast.Module:
    """The tree of a file; five gates read it."""
    return ast.parse(source)


def tracked() -> list[str]:
    """Files of the repository: tracked, and new ones that are not ignored."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout.splitlines()
    return sorted(name for name in listed if (ROOT / name).is_file())


def sources(package: str = "") -> Iterator[tuple[str, str]]:
    for name in tracked():
        if name.endswith(".py") and name.startswith(package):
            yield name, (ROOT / name).read_text(encoding="utf-8")


def imports(path: str, source: str) -> Iterator[tuple[str, str | None]]:
    """(module, name or None) of every import statement, nested and type-checking ones included."""
    folder = path.removesuffix(".py").split("/")[:-1]
    for node in ast.walk(parsed(source)):
        if isinstance(node, ast.Import):
            yield from ((alias.name, None) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = folder[: len(folder) - node.level + 1] if node.level else []
            module = ".".join([*base, *([node.module] if node.module else [])])
            yield from ((module, alias.name) for alias in node.names)


def top_imports(path: str, source: str) -> Iterator[tuple[str, str | None]]:
    """Imports that run when the module is imported: those outside of functions."""
    body = [node for node in parsed(source).body if isinstance(node, ast.Import | ast.ImportFrom)]
    yield from imports(path, "\n".join(ast.unparse(node) for node in body))


def layer(module: str, name: str | None) -> str | None:
    """The engine layer that an import reaches; None outside of engine and for the door itself."""
    parts = module.split(".") + ([name] if name else [])
    if parts[0] != "engine" or len(parts) < 2:
        return None
    if len(module.split(".")) == 1 and name in engine._DOOR:
        return "door"
    return parts[1]


def engine_direction(path: str, source: str) -> list[str]:
    own = path.removesuffix(".py").split("/")[1]
    if own == "__init__":
        return []
    if own not in RANK:
        return [f"{path}: {own} has no place in the order of layers"]
    bad = []
    for module, name in imports(path, source):
        other = layer(module, name)
        if other is not None and RANK.get(other, len(LAYERS)) > RANK[own]:
            bad.append(f"{path}: {own} imports {other}")
        if module.split(".")[0] in (*PACKAGES[1:], *ORACLE_LIBRARIES):
            bad.append(f"{path}: engine imports {module}")
    return bad


def package_direction(path: str, source: str) -> list[str]:
    """lab -> evals -> oracles -> engine, and only through engine's door."""
    own = path.split("/")[0]
    bad = []
    for module, name in imports(path, source):
        other = module.split(".")[0]
        if other in PACKAGES and PACKAGES.index(other) > PACKAGES.index(own):
            bad.append(f"{path}: {own} imports {other}")
        if other == "engine" and own != "engine":
            served = path == "lab/cli.py" and (module.startswith("engine.serve") or name == "serve")
            if not served and (module != "engine" or name not in engine.__all__):
                bad.append(f"{path}: {module}:{name} is not the public door")
    return bad


def oracle_libraries(path: str, source: str) -> list[str]:
    """mlx_lm only in adapters, optiq only in its own: importing optiq patches the mlx_lm of the whole process.

    optiq runs on that patched mlx_lm, so its adapter may name both; nothing that serves as the mlx-lm oracle may.
    A probe of the fault register imports mlx_lm inside of its functions, which run in a process of their own.
    """
    used = {module.split(".")[0] for module, _ in imports(path, source)} & set(ORACLE_LIBRARIES)
    used |= {name for name in ORACLE_LIBRARIES if re.search(rf"import_module\([\"']{name}[.\"']", source)}
    bad = []
    probe = path.startswith("oracles/faults/")  # each runs in a process of its own
    if "optiq" in used and path != "oracles/optiq_adapter.py" and not probe:
        bad.append(f"{path}: only oracles/optiq_adapter.py and the probes of faults may import optiq")
    at_top = {module.split(".")[0] for module, _ in top_imports(path, source)} & set(ORACLE_LIBRARIES)
    allowed = re.fullmatch(r"oracles/\w+_adapter\.py", path) or (probe and not at_top)
    if used and path.split("/")[0] in PACKAGES and not allowed:
        bad.append(f"{path}: only oracles/*_adapter.py may import {', '.join(sorted(used))}")
    if path.startswith("oracles/") and path != "oracles/optiq_adapter.py":
        bad += [f"{path}: {m} brings optiq in" for m, _ in top_imports(path, source) if m.endswith("optiq_adapter")]
    return bad


def size_and_name(path: str, source: str) -> list[str]:
    bad = []
    if source.count("\n") > MAX_LINES:
        bad.append(f"{path}: {source.count(chr(10))} lines; at most {MAX_LINES}")
    if path.rsplit("/", 1)[-1] in ("utils.py", "helpers.py", "misc.py"):
        bad.append(f"{path}: a module is named for what it owns")
    return bad


def dynamic_dispatch(path: str, source: str) -> list[str]:
    """hasattr, and getattr by a variable name except straight on an imported module (the one registry form)."""
    bad = []
    for node in ast.walk(parsed(source)):
        if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Name)):
            continue
        if node.func.id == "hasattr":
            bad.append(f"{path}:{node.lineno}: hasattr")
        if node.func.id == "getattr" and len(node.args) > 1 and not isinstance(node.args[1], ast.Constant):
            target = node.args[0]
            registry = isinstance(target, ast.Call) and ast.unparse(target.func) == "importlib.import_module"
            if not registry and ast.unparse(target) != "self":
                bad.append(f"{path}:{node.lineno}: getattr by a variable name")
    return bad


def registries(path: str, source: str) -> Iterator[tuple[str, str]]:
    """(dict name, "module:symbol") of the literal registries in a package's `__init__`."""
    for node in parsed(source).body:
        value = node.value if isinstance(node, ast.Assign | ast.AnnAssign) else None
        if isinstance(value, ast.Dict):
            for entry in value.values:
                if isinstance(entry, ast.Constant) and re.fullmatch(r"[\w.]+:\w+", str(entry.value)):
                    yield path, str(entry.value)


GATES = {
    "engine_direction": (engine_direction, "engine/"),
    "package_direction": (package_direction, ("engine/", "oracles/", "evals/", "lab/")),
    "oracle_libraries": (oracle_libraries, ""),
    "size_and_name": (size_and_name, ""),
    "dynamic_dispatch": (dynamic_dispatch, "engine/"),
}


@pytest.mark.parametrize("gate", GATES)
def test_gate(gate: str) -> None:
    check, where = GATES[gate]
    checked = [(path, source) for path, source in sources() if path.startswith(where)]
    assert checked
    assert [problem for path, source in checked for problem in check(path, source)] == []


@pytest.mark.parametrize(
    ("gate", "path", "source"),
    [
        ("engine_direction", "engine/kv/dense.py", "from engine.graph.spec import ArchSpec"),
        ("engine_direction", "engine/kv/dense.py", "def f() -> None:\n    import engine.api"),
        ("engine_direction", "engine/kv/dense.py", "from ..graph import spec"),
        ("engine_direction", "engine/kv/dense.py", "from engine import load"),
        ("engine_direction", "engine/extra.py", ""),
        ("engine_direction", "engine/api.py", "import mlx_lm.utils"),
        ("engine_direction", "engine/api.py", "from oracles import contract"),
        ("package_direction", "oracles/record.py", "from evals.kl import kl"),
        ("package_direction", "lab/run.py", "from engine.types import Request"),
        ("package_direction", "lab/run.py", "import engine"),
        ("package_direction", "lab/run.py", "from engine import serve"),
        ("package_direction", "evals/kl.py", "from engine import Nothing"),
        ("oracle_libraries", "lab/run.py", "import mlx_lm"),
        ("oracle_libraries", "oracles/faults/top_k.py", "import mlx_lm"),
        ("oracle_libraries", "oracles/record.py", "from optiq import kv"),
        ("oracle_libraries", "oracles/mlx_lm_adapter.py", "import mlx_lm\nimport optiq"),
        ("oracle_libraries", "oracles/mlx_lm_adapter.py", "from oracles.optiq_adapter import OptiqStack"),
        ("oracle_libraries", "tests/engine/test_x.py", "def test_it():\n    import optiq"),
        ("oracle_libraries", "oracles/record.py", "importlib.import_module('mlx_lm.utils')"),
        ("size_and_name", "lab/utils.py", ""),
        ("size_and_name", "lab/run.py", "\n" * (MAX_LINES + 1)),
        ("dynamic_dispatch", "engine/api.py", "hasattr(cache, 'bits')"),
        ("dynamic_dispatch", "engine/api.py", "getattr(cache, name)()"),
    ],
)
def test_gate_catches(gate: str, path: str, source: str) -> None:
    assert GATES[gate][0](path, source)


@pytest.mark.parametrize(
    ("gate", "path", "source"),
    [
        ("engine_direction", "engine/sample/keys.py", "from engine.kv.base import LayerKV\nfrom engine import backend"),
        ("package_direction", "lab/cli.py", "from engine.serve import app"),
        ("package_direction", "lab/run.py", "from engine import errors, load\nfrom evals import kl"),
        ("oracle_libraries", "oracles/mlx_lm_adapter.py", "import mlx_lm"),
        ("oracle_libraries", "oracles/faults/top_k.py", "def probe():\n    import mlx_lm"),
        ("dynamic_dispatch", "engine/api.py", "getattr(importlib.import_module(module), symbol)"),
    ],
)
def test_gate_lets_pass(gate: str, path: str, source: str) -> None:
    assert GATES[gate][0](path, source) == []


def test_importing_engine_and_every_command_loads_no_mlx() -> None:
    code = (
        "import sys, engine; from lab import cli; cli.overview();"
        "heavy = {'mlx', 'mlx_lm', 'optiq', 'transformers', 'torch', 'matplotlib', 'pandas', 'scipy'};"
        "print(sorted(heavy & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True, capture_output=True, text=True)
    assert done.stdout.strip() == "[]"


def test_top_level() -> None:
    assert {name.split("/")[0] for name in tracked()} <= TOP_LEVEL


def test_registries_resolve() -> None:
    entries = [pair for path, source in sources() if path.endswith("__init__.py") for pair in registries(path, source)]
    assert {path for path, _ in entries} >= {"engine/__init__.py", "lab/commands/__init__.py"}
    for path, entry in entries:
        module, symbol = entry.split(":")
        assert symbol in importlib.import_module(module).__dict__, f"{path}: {entry} does not resolve"


def test_door_and_its_typing_agree() -> None:
    """Names that a type checker sees are names that exist."""
    source = (ROOT / "engine/__init__.py").read_text(encoding="utf-8")
    typed = {name for module, name in imports("engine/__init__.py", source) if module.startswith("engine")}
    assert typed - {"errors"} <= set(engine._DOOR)


def test_no_host_and_no_path_of_a_machine() -> None:
    """Neither the lock nor any text names a package registry or a home folder."""
    pattern = re.compile(r"(index-url|find-links|https?://[^\s\"']*/simple\b|/" + r"home/\w+/|/" + r"Users/\w+/)")
    for name in tracked():
        if name.endswith((".py", ".md", ".toml", ".lock", ".yaml", ".json")) or name in ("Makefile", ".ci/run"):
            text = (ROOT / name).read_text(encoding="utf-8")
            if name not in ("tests/test_gates.py", "Makefile"):
                assert not pattern.search(text), f"{name}: {pattern.search(text)}"


def test_lock_pins_exactly() -> None:
    lines = (ROOT / "requirements.lock").read_text(encoding="utf-8").splitlines()
    assert all(re.fullmatch(r"[a-z0-9.-]+==[\w.]+( ; .+)?", line) for line in lines)
    assert {"mlx==0.32.4", "mlx-lm==0.32.2", "mlx-optiq==0.7.7"} <= set(lines)
