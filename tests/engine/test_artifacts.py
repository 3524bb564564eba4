"""Names become folders: built-in models whole or absent, hub ids, and folders that are damaged."""

from __future__ import annotations

import hashlib
import json
import shutil
import subprocess
import sys
import zipfile
from dataclasses import replace
from pathlib import Path

import httpx
import huggingface_hub
import mlx.core as mx
import numpy as np
import pytest
from gguf_files import write_gguf
from huggingface_hub import errors as hub

from engine import BUILTIN, errors, resolve_model
from engine.artifacts import builtin
from engine.artifacts.builtin import Builtin, Wheel, cached_builtin, fetch_builtin
from engine.artifacts.cache import cache_folder
from engine.artifacts.checkpoint import read_config, read_weights, weights_sha256

Steps = list[tuple[str, int, int | None]]

FETCH = """
import json, sys
from engine.artifacts import builtin
wheel = builtin.Wheel(**json.loads(sys.argv[1]))
builtin.BUILTIN = {"tiny": builtin.Builtin(name="tiny", wheel=wheel, dense=False, about="")}
labels = []
print(sys.stdin.readline().strip())
print(builtin.fetch_builtin("tiny", progress=lambda label, done, total: labels.append(label)))
print(any("downloading" in label for label in labels))
"""


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("FRONTIER_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Wheel]:
    """A folder that pip takes for its index, with one wheel that holds a small GGUF."""
    folder = tmp_path_factory.mktemp("index")
    write_gguf(folder / "tiny.gguf")
    path = folder / "tiny_model-0.1-py3-none-any.whl"
    info = "tiny_model-0.1.dist-info"
    with zipfile.ZipFile(path, "w") as archive:
        archive.write(folder / "tiny.gguf", "tiny_model/tiny.gguf")
        archive.writestr(f"{info}/METADATA", "Metadata-Version: 2.1\nName: tiny-model\nVersion: 0.1\n")
        archive.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr(f"{info}/RECORD", "")
    (folder / "tiny.gguf").unlink()
    wheel = Wheel(
        requirement="tiny-model==0.1",
        filename=path.name,
        sha256=hashlib.sha256(path.read_bytes()).hexdigest(),
        archive_bytes=path.stat().st_size,
        member="tiny_model/tiny.gguf",
    )
    return folder, wheel


@pytest.fixture
def tiny(index: tuple[Path, Wheel], monkeypatch: pytest.MonkeyPatch) -> Wheel:
    """Built-in models "tiny" and "tiny-fp32", from the local index."""
    folder, wheel = index
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
    use(wheel, monkeypatch)
    return wheel


def use(wheel: Wheel, monkeypatch: pytest.MonkeyPatch) -> None:
    entries = [Builtin(name="tiny", wheel=wheel, dense=False, about="")]
    entries.append(Builtin(name="tiny-fp32", wheel=wheel, dense=True, about=""))
    monkeypatch.setattr(builtin, "BUILTIN", {e.name: e for e in entries})


def no_pip(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, says: str) -> None:
    """From here on a call of Python prints `says` and fails."""
    script = tmp_path / "python"
    script.write_text(f"#!/bin/sh\necho '{says}' >&2\nexit 1\n")
    script.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(script))


def leftovers(cache: Path) -> list[Path]:
    return list(cache.rglob(".*"))


def test_a_builtin_is_fetched_once_and_found_again(
    tiny: Wheel, own_cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps: Steps = []
    assert cached_builtin("tiny-fp32") is None
    dense = fetch_builtin("tiny-fp32", progress=lambda *step: steps.append(step))
    assert read_config(dense)["mlx_frontier"]["dequantized"] is True
    assert (f"downloading {tiny.requirement}", tiny.archive_bytes, tiny.archive_bytes) in steps
    no_pip(tmp_path, monkeypatch, "not to be called")
    assert fetch_builtin("tiny-fp32") == dense == cached_builtin("tiny-fp32")
    packed = fetch_builtin("tiny")
    assert "quantization" in read_config(packed)
    assert leftovers(own_cache) == []


def test_a_kept_wheel_is_enough(tiny: Wheel, own_cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Killed after the download: the wheel is reused, and what the killed process left is removed."""
    first = fetch_builtin("tiny")
    shutil.rmtree(first)
    (first.parent / ".tiny.dead").mkdir()
    (first.parent / f".{tiny.filename}.dead").mkdir()
    (first.parent / ".tiny.dead" / "model.safetensors").write_bytes(b"half")
    no_pip(tmp_path, monkeypatch, "not to be called")
    assert fetch_builtin("tiny") == first
    assert leftovers(own_cache) == []


def test_a_wrong_wheel_is_removed_and_named(tiny: Wheel, monkeypatch: pytest.MonkeyPatch) -> None:
    kept = cache_folder("wheels") / tiny.filename
    kept.write_bytes(b"something else")
    with pytest.raises(errors.CorruptFile, match=f"{tiny.filename}: sha256 is .* not {tiny.sha256}; removed"):
        fetch_builtin("tiny")
    assert not kept.exists()
    use(replace(tiny, sha256="0" * 64), monkeypatch)
    with pytest.raises(errors.CorruptFile, match="sha256"):
        fetch_builtin("tiny")
    assert list(kept.parent.iterdir()) == []
    assert cached_builtin("tiny") is None


def test_no_index_says_what_to_do(tiny: Wheel, own_cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PIP_FIND_LINKS")
    with pytest.raises(errors.NetworkUnavailable, match="check the network") as caught:
        fetch_builtin("tiny")
    assert str(own_cache / "wheels" / tiny.filename) in str(caught.value)
    assert "\n" not in str(caught.value)
    assert leftovers(own_cache) == []


def test_no_pip_names_the_command(tiny: Wheel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    no_pip(tmp_path, monkeypatch, "python: No module named pip")
    with pytest.raises(errors.MissingTool, match="-m ensurepip"):
        fetch_builtin("tiny")


def test_a_failed_conversion_leaves_nothing(
    tiny: Wheel, own_cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = tmp_path / tiny.filename
    with zipfile.ZipFile(broken, "w") as archive:
        archive.writestr(tiny.member, b"GGUF\x03\x00\x00\x00")
    shutil.copyfile(broken, cache_folder("wheels") / tiny.filename)
    content = broken.read_bytes()
    use(replace(tiny, sha256=hashlib.sha256(content).hexdigest(), archive_bytes=len(content)), monkeypatch)
    with pytest.raises(errors.CorruptFile, match="truncated"):
        fetch_builtin("tiny")
    assert cached_builtin("tiny") is None
    assert leftovers(own_cache) == []


def test_two_processes_fetch_once(tiny: Wheel, own_cache: Path) -> None:
    command = [sys.executable, "-c", FETCH, json.dumps(tiny.__dict__)]
    pipe = subprocess.PIPE
    both = [subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True) for _ in range(2)]
    for process in both:  # each has imported everything before either starts
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()
    said = [process.communicate(timeout=120)[0].splitlines() for process in both]
    assert [process.returncode for process in both] == [0, 0]
    assert said[0][1] == said[1][1]
    assert sorted(lines[2] for lines in said) == ["False", "True"]
    assert leftovers(own_cache) == []


def test_the_pinned_models_are_named() -> None:
    assert set(BUILTIN) == {"smollm2-135m-instruct", "smollm2-135m-instruct-fp32"}
    assert all(name == entry.name and len(entry.wheel.sha256) == 64 for name, entry in BUILTIN.items())


def test_folders_and_unknown_names(tmp_path: Path, llama_folder: Path) -> None:
    assert resolve_model(str(llama_folder)) == llama_folder
    (tmp_path / "empty").mkdir()
    (tmp_path / "m.gguf").write_bytes(b"GGUF")
    for name, says in (
        (str(tmp_path / "empty"), "config.json"),
        (str(tmp_path / "m.gguf"), "frontier convert"),
        ("nonsense", "smollm2-135m-instruct, smollm2-135m-instruct-fp32"),
        ("a/b/c", "neither"),
        ("", "neither"),
    ):
        with pytest.raises(errors.ModelNotFound, match=says):
            resolve_model(name)


def test_a_hub_id_is_fetched(llama_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[str, list[str]]] = []
    steps: Steps = []

    def snapshot(name: str, *, allow_patterns: list[str], tqdm_class: type) -> str:
        asked.append((name, allow_patterns))
        bar = tqdm_class(total=10, unit="B", desc="Downloading bytes")
        bar.update(4)
        bar.total = 20
        bar.update(6)
        bar.close()
        return str(llama_folder)

    monkeypatch.setattr(huggingface_hub, "snapshot_download", snapshot)
    assert resolve_model("org/name", progress=lambda *step: steps.append(step)) == llama_folder
    assert asked[0][0] == "org/name"
    assert "model*.safetensors" in asked[0][1]
    assert not any(pattern.endswith(".py") for pattern in asked[0][1])
    assert steps == [("fetching org/name", 0, None), ("fetching org/name", 4, 10), ("fetching org/name", 10, 20)]


RESPONSE = httpx.Response(404, request=httpx.Request("GET", "http://hub.invalid"))


@pytest.mark.parametrize(
    ("failure", "error", "says"),
    [
        (hub.RepositoryNotFoundError("no", response=RESPONSE), errors.ModelNotFound, "no such model"),
        (hub.GatedRepoError("no", response=RESPONSE), errors.ModelNotFound, "log in"),
        (hub.LocalEntryNotFoundError("no"), errors.NetworkUnavailable, "hub did not answer"),
        (hub.OfflineModeIsEnabled("no"), errors.NetworkUnavailable, "hub did not answer"),
        (httpx.ConnectError("no"), errors.NetworkUnavailable, "hub did not answer"),
    ],
)
def test_hub_failures_are_typed(
    failure: Exception, error: type[Exception], says: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def snapshot(*args: object, **kwargs: object) -> str:
        raise failure

    monkeypatch.setattr(huggingface_hub, "snapshot_download", snapshot)
    with pytest.raises(error, match=says) as caught:
        resolve_model("org/name")
    assert "\n" not in str(caught.value)


def test_config_and_generation_config(tmp_path: Path) -> None:
    with pytest.raises(errors.ModelNotFound, match=r"config\.json"):
        read_config(tmp_path)
    (tmp_path / "config.json").write_text('{"eos_token_id": 2, "vocab_size": 9}')
    assert read_config(tmp_path) == {"eos_token_id": 2, "vocab_size": 9}
    (tmp_path / "generation_config.json").write_text('{"eos_token_id": [2, 3]}')
    assert read_config(tmp_path)["eos_token_id"] == [2, 3]
    (tmp_path / "config.json").write_text('{"eos')
    with pytest.raises(errors.CorruptFile, match="not JSON"):
        read_config(tmp_path)


def test_weights_are_read_whole_or_not_at_all(tmp_path: Path) -> None:
    with pytest.raises(errors.ModelNotFound, match="safetensors"):
        read_weights(tmp_path)
    mx.save_safetensors(str(tmp_path / "model-1.safetensors"), {"a": mx.arange(6).reshape(2, 3)})
    mx.save_safetensors(str(tmp_path / "model-2.safetensors"), {"b": mx.ones(4)})
    assert {k: np.array(v).tolist() for k, v in read_weights(tmp_path).items()} == {
        "a": [[0, 1, 2], [3, 4, 5]],
        "b": [1, 1, 1, 1],
    }
    whole = (tmp_path / "model-2.safetensors").read_bytes()
    for cut in range(len(whole)):
        (tmp_path / "model-2.safetensors").write_bytes(whole[:cut])
        with pytest.raises(errors.CorruptFile, match="model-2"):
            read_weights(tmp_path)


def test_the_hash_is_of_the_content(tmp_path: Path) -> None:
    file = tmp_path / "model.safetensors"
    mx.save_safetensors(str(file), {"a": mx.ones(4)})
    first = weights_sha256(tmp_path)
    assert first == weights_sha256(tmp_path) == hashlib.sha256(b"model.safetensors" + file.read_bytes()).hexdigest()
    mx.save_safetensors(str(file), {"a": mx.zeros(4)})
    assert weights_sha256(tmp_path) != first


def test_the_cache_follows_the_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("FRONTIER_CACHE", str(tmp_path / "mine"))
    assert cache_folder("a") == tmp_path / "mine" / "a"
    monkeypatch.delenv("FRONTIER_CACHE")
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert cache_folder("a") == tmp_path / "xdg" / "mlx-frontier" / "a"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    assert cache_folder("a") == tmp_path / "home" / ".cache" / "mlx-frontier" / "a"
