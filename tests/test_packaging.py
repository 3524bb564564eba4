"""The wheel: it builds, holds every package and data file, and works outside of the tree."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = ("engine", "oracles", "evals", "lab", "experiments")
SHIPPED = (".py", ".yaml", ".json", ".jsonl", ".txt", ".mako")

pytestmark = pytest.mark.matrix


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built from a copy, so that nothing is left in the tree and nothing stale from it gets in."""
    source, out = tmp_path_factory.mktemp("source") / "tree", tmp_path_factory.mktemp("dist")
    source.mkdir()
    for name in (*PACKAGES, "pyproject.toml", "README.md", "LICENSE"):
        origin = ROOT / name
        if origin.is_dir():
            shutil.copytree(origin, source / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(origin, source / name)
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", str(out), str(source)]
    subprocess.run(command, check=True, cwd=out)
    (built,) = out.glob("mlx_frontier-*-py3-none-any.whl")
    return built


def test_wheel_holds_every_source_and_data_file(wheel: Path) -> None:
    listed = subprocess.run(["git", "ls-files", *PACKAGES], cwd=ROOT, check=True, capture_output=True, text=True)
    wanted = {name for name in listed.stdout.splitlines() if name.endswith(SHIPPED)}
    assert "lab/cli.py" in wanted
    with zipfile.ZipFile(wheel) as archive:
        held = {name for name in archive.namelist() if ".dist-info/" not in name}
        entry_points = archive.read(next(n for n in archive.namelist() if n.endswith("entry_points.txt"))).decode()
    assert wanted - held == set()
    assert {name.split("/")[0] for name in held} == set(PACKAGES)
    assert "frontier = lab.cli:main" in entry_points


def test_installed_wheel_works_outside_the_tree(wheel: Path, tmp_path: Path) -> None:
    venv = tmp_path / "venv"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(venv)], check=True)
    python = venv / "bin" / "python"
    site = sysconfig.get_path("purelib", vars={"base": str(venv), "platbase": str(venv)})
    install = [sys.executable, "-m", "pip", "--python", str(python), "install", "--quiet", "--no-deps", str(wheel)]
    subprocess.run(install, check=True, cwd=tmp_path)
    # The dependencies come from the environment that runs the tests; the project itself must not.
    (Path(site) / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n", encoding="utf-8")
    environment = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "VIRTUAL_ENV")}

    where = subprocess.run(
        [str(python), "-c", "import engine, lab; print(engine.__file__, lab.__file__)"],
        check=True, capture_output=True, text=True, cwd=tmp_path, env=environment,
    ).stdout  # fmt: skip
    assert str(ROOT) not in where

    declared = [str(venv / "bin" / "frontier"), "lab", "list", "--json"]
    done = subprocess.run(declared, check=True, capture_output=True, text=True, cwd=tmp_path, env=environment)
    assert "kv8" in done.stdout.splitlines()[-1]

    doctor = [str(venv / "bin" / "frontier"), "doctor", "--json", "--blas", "bundled"]
    done = subprocess.run(doctor, check=True, capture_output=True, text=True, cwd=tmp_path, env=environment)
    document = json.loads(done.stdout.splitlines()[-1])
    assert document["versions"]["mlx-frontier"] == "0.1.0"
    assert document["machine"]["mlx"] == "0.32.4"
    assert document["machine"]["key"].startswith(("linux-", "darwin-"))
