"""mlx-lm's own server, running, as a recipe of the scorecard beside the processes: what it gives is stored."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import httpx
import pytest

from lab import ceilings, fingerprint
from lab.recipes import PROFILES, RECIPES
from lab.scorecard.ledger import NewRun, RunRecord, machine_class
from lab.scorecard.runs import read_runs
from lab.scorecard.servers import ServerConfig
from lab.stages import Tick, measure_recipes
from lab.store import Store

MODEL = Path(__file__).resolve().parents[1] / "zoo" / "llama-3m"
SIZES = {"rounds": 3, "prompt_tokens": 24, "decode_tokens": 9, "kl_sequences": 2, "kl_length": 12, "kl_check": 1}
# As in the full profile: processes are new in each round, so that a server is warmed up again and again.
PROFILE = replace(PROFILES["quick"], relaunch=True, **SIZES)


def endless(folder: Path) -> Path:
    """The model with a token that it never writes as its end of text: that server knows no `ignore_eos`."""
    shutil.copytree(MODEL, folder)
    rare = max(json.loads((folder / "tokenizer.json").read_text())["model"]["vocab"].items(), key=lambda pair: pair[1])
    for name, field, value in (("config", "eos_token_id", [rare[1]]), ("tokenizer_config", "eos_token", rare[0])):
        path = folder / f"{name}.json"
        path.write_text(json.dumps(json.loads(path.read_text()) | {field: value}))
    return folder


@contextmanager
def running(folder: Path, model: Path) -> Iterator[str]:
    """`mlx_lm.server` on a tiny model; its address."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
    (folder / "hub").mkdir(parents=True)
    env = os.environ | {"HF_HOME": str(folder), "HF_HUB_OFFLINE": "1"}
    line = [sys.executable, "-m", "mlx_lm", "server", "--model", str(model), "--port", str(port)]
    with open(folder / "server.log", "w", encoding="utf-8") as log:
        process = subprocess.Popen(line, env=env, stdout=log, stderr=log)
    try:
        url, deadline = f"http://127.0.0.1:{port}/v1", time.monotonic() + 120
        while True:
            assert process.poll() is None, (folder / "server.log").read_text()
            assert time.monotonic() < deadline, "the server did not come up"
            try:
                if httpx.get(f"{url}/models", timeout=5).status_code == 200:
                    break
            except httpx.TransportError:
                time.sleep(0.2)
        yield url
    finally:
        process.terminate()
        process.wait(30)


@contextmanager
def stage(_name: str, _what: str, _expected_s: float) -> Iterator[Tick]:
    yield lambda _detail, _done, _total: None


@pytest.mark.matrix
def test_mlx_lms_server_takes_its_turn_and_its_samples_are_stored(tmp_path: Path) -> None:
    said: list[str] = []
    print_ = fingerprint.take()
    model = endless(tmp_path / "model")
    with running(tmp_path / "server", model) as url, Store.open(str(tmp_path / "lab.sqlite")) as store:
        server = ServerConfig.of(url)
        new = NewRun(
            print=print_,
            model=str(model),
            timing_model=str(model),
            model_sha256=fingerprint.model_sha256(model),
            profile=PROFILE.name,
            limits=machine_class("shared"),
            command="a test",
            specs=(*RECIPES, server.spec),
        )
        with RunRecord.begin(store, new) as record:
            artifact = ceilings.read_artifact(model)
            measure_recipes(stage, said.append, record, model, artifact, PROFILE, "bundled", [server])
        (run,) = read_runs(store, print_.machine_key)
    assert server.spec.name not in run.refused, run.refused
    names = {server.spec.name, "engine native", "mlx-lm native"}
    taken = {name: [s for s in run.samples if s.recipe == name] for name in names}
    assert {name: len(each) for name, each in taken.items()} == dict.fromkeys(names, PROFILE.rounds)
    mine = taken[server.spec.name]
    assert all(s.decode_tok_s > 0 and s.prefill_tok_s > 0 and s.peak_bytes is None for s in mine)
    assert {s.kv_status for s in mine} == {f"server, {model}"}
    assert all(s.peak_bytes for s in taken["engine native"])
