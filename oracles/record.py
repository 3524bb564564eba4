"""Goldens: what an oracle answered, kept as files by machine key.

A golden is one safetensors file and one entry in `manifest.json`. Recording is an explicit command and refuses a run
whose live caches are not of the asked scheme. Verifying checks the engine against the files, and the oracle against its
own record, so that a drift of either side shows. Another machine key is "not comparable": its bits are its own.
"""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from engine import errors, machine
from oracles.client import Worker
from oracles.compare import Difference
from oracles.contract import GenerateProbe, OracleRefused, Probe, StackConfig, Trace
from oracles.live import require_scheme
from oracles.matrix import FREE_STEPS, PROMPT, SAMPLED, STEPS, free_run, kv_notation, mixed_kv, random_ids
from oracles.parity import compare_traces
from oracles.tiny import FAMILIES, RECIPES, tiny_model
from oracles.worker import parse_probe, probe_request

MANIFEST = "manifest.json"
NOT_COMPARABLE = "not comparable"
Progress = Callable[[str, int, int | None], None]


@dataclass(frozen=True, kw_only=True)
class GoldenSpec:
    """One golden to record: a tiny model, a configuration, a probe. kv "mixed" is `matrix.mixed_kv`, by optiq."""

    name: str
    family: str
    dtype: str
    quant: str | None
    kv: str
    chunk: int
    probe: Probe | GenerateProbe
    stack: str = "mlx-lm"


@dataclass(frozen=True)
class Verified:
    """One golden's check. `engine` and `oracle`: "equal", "differs", "not built", "refused", or why it was not run."""

    name: str
    engine: str
    oracle: str
    engine_difference: Difference | None = None
    oracle_difference: Difference | None = None

    @property
    def ok(self) -> bool:
        return self.oracle == "equal" and self.engine in ("equal", "not built")

    def as_dict(self) -> dict[str, Any]:
        """JSON form."""
        ours, theirs = self.engine_difference, self.oracle_difference
        return {
            "name": self.name,
            "ok": self.ok,
            "engine": self.engine,
            "oracle": self.oracle,
            "engine_difference": ours.as_dict() if ours else None,
            "oracle_difference": theirs.as_dict() if theirs else None,
        }


def tiny_specs() -> list[GoldenSpec]:
    """The recorded suite: every family in fp32, bf16 and 4 bit, each with a quantised cache, and mixed KV per layer."""
    specs = []
    for family in FAMILIES:
        ids = random_ids(RECIPES[family].vocab, PROMPT + STEPS)
        forced = Probe(token_ids=ids, tail=STEPS)
        sampled = free_run(ids[:PROMPT], FREE_STEPS, **SAMPLED)
        kv8 = "native" if family == "gemma2" else kv_notation(family, 8)
        kv4 = "native" if family == "gemma2" else kv_notation(family, 4)
        for dtype, quant, kv, probe, kind in (
            ("float32", None, "native", forced, "forced"),
            ("float32", None, kv8, sampled, "sampled"),
            ("bfloat16", None, kv8, forced, "forced"),
            ("float32", "q4g64", kv4, forced, "forced"),
        ):
            name = "-".join(filter(None, (family, dtype, quant, kv.replace(":", "-"), kind)))
            specs.append(GoldenSpec(name=name, family=family, dtype=dtype, quant=quant, kv=kv, chunk=7, probe=probe))
    for family in ("llama", "qwen3"):
        ids = random_ids(RECIPES[family].vocab, PROMPT + STEPS)
        for kind, probe in (
            ("forced", Probe(token_ids=ids, tail=STEPS)),
            ("greedy", free_run(ids[:PROMPT], FREE_STEPS)),
        ):
            name = f"{family}-float32-mixed-{kind}"
            specs.append(
                GoldenSpec(
                    name=name,
                    family=family,
                    dtype="float32",
                    quant=None,
                    kv="mixed",
                    chunk=7,
                    probe=probe,
                    stack="optiq",
                )
            )
    return specs


def record(specs: list[GoldenSpec], root: Path, *, progress: Progress) -> Path:
    """Run the oracles and write `root/<machine key>`, replacing what was there under the same names.

    Raises `SchemeNotLive` before anything of that golden is written. The manifest is written last.
    """
    folder = root / machine().key
    folder.mkdir(parents=True, exist_ok=True)
    entries: dict[str, Any] = {}
    for done, spec in enumerate(specs):
        progress("recording goldens", done, len(specs))
        model = tiny_model(spec.family, dtype=spec.dtype, quant=spec.quant)
        config = _config(spec.stack, str(model), spec.kv, spec.chunk)
        with Worker(config) as worker:
            trace = worker.probe(spec.probe)
        entries[spec.name] = write_golden(folder, spec, config, trace, model)
    progress("recording goldens", len(specs), len(specs))
    manifest = {"machine": machine().key, "mlx": machine().mlx, "generator_commit": source_commit(), "goldens": entries}
    write_whole(folder / MANIFEST, (json.dumps(manifest, indent=1, sort_keys=True) + "\n").encode())
    return folder


def write_golden(folder: Path, spec: GoldenSpec, config: StackConfig, trace: Trace, model: Path) -> dict[str, Any]:
    """Write one golden's file and return its manifest entry; refuses a scheme that was not live."""
    require_scheme(trace, config.kv)
    blob = _blob(trace.tensors)
    write_whole(folder / f"{spec.name}.safetensors", blob)
    return {
        "stack": spec.stack,
        "versions": trace.doc["versions"],
        "family": spec.family,
        "dtype": spec.dtype,
        "quant": spec.quant,
        "kv": spec.kv,
        "kv_live": trace.doc["kv_status"],
        "kv_layers": [cache["scheme"] for cache in trace.doc["caches"]],
        "chunk": spec.chunk,
        "probe": probe_request(spec.probe),
        "steps": spec.probe.tail if isinstance(spec.probe, Probe) else spec.probe.sampling["max_tokens"],
        "doc": {name: trace.doc[name] for name in ("tokens", "kv_live") if name in trace.doc},
        "model_sha256": model_sha256(model),
        "blob_sha256": hashlib.sha256(blob).hexdigest(),
    }


def verify(root: Path, *, progress: Progress) -> list[Verified]:
    """Check every golden of this machine key, the engine's answer and the oracle's own; raises `errors.CorruptFile`
    for a damaged file and `errors.ModelNotFound` when the seeded model is no longer the recorded one."""
    folder = root / machine().key
    manifest = read_manifest(folder)
    results = []
    for done, (name, entry) in enumerate(manifest["goldens"].items()):
        progress("verifying goldens", done, len(manifest["goldens"]))
        results.append(_verify_one(folder, name, entry))
    progress("verifying goldens", len(results), len(results))
    return results


def comparable(root: Path) -> bool:
    """True when goldens of this machine key and this MLX version are there."""
    path = root / machine().key / MANIFEST
    return path.is_file() and json.loads(path.read_text(encoding="utf-8"))["mlx"] == machine().mlx


def read_manifest(folder: Path) -> dict[str, Any]:
    """The manifest of one machine key."""
    path = folder / MANIFEST
    try:
        manifest = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, json.JSONDecodeError) as error:
        raise errors.CorruptFile(path, f"not a readable manifest: {error}") from error
    if not isinstance(manifest, dict) or "goldens" not in manifest:
        raise errors.CorruptFile(path, "not a manifest of goldens")
    return manifest


def read_golden(folder: Path, name: str, entry: Mapping[str, Any]) -> Trace:
    """One golden, checked against its sha256."""
    import mlx.core as mx

    path = folder / f"{name}.safetensors"
    if not path.is_file():
        raise errors.CorruptFile(path, "named in the manifest, but not there")
    if hashlib.sha256(path.read_bytes()).hexdigest() != entry["blob_sha256"]:
        raise errors.CorruptFile(path, "its sha256 is not the manifest's")
    tensors = mx.load(str(path))
    assert isinstance(tensors, dict)
    return Trace(tensors, entry["doc"])


def model_sha256(folder: Path) -> str:
    """Of config.json and the weights together."""
    digest = hashlib.sha256()
    for path in (folder / "config.json", *sorted(folder.glob("model*.safetensors"))):
        with path.open("rb") as file:
            while block := file.read(1 << 24):
                digest.update(block)
    return digest.hexdigest()


def _verify_one(folder: Path, name: str, entry: Mapping[str, Any]) -> Verified:
    golden = read_golden(folder, name, entry)
    model = tiny_model(entry["family"], dtype=entry["dtype"], quant=entry["quant"])
    if model_sha256(model) != entry["model_sha256"]:
        raise errors.ModelNotFound(f"{name}: the seeded model is not the recorded one; record the goldens again")
    probe = parse_probe(entry["probe"])
    verdicts: dict[str, tuple[str, Difference | None]] = {}
    for stack in ("engine", entry["stack"]):
        config = _config(stack, str(model), entry["kv"], entry["chunk"])
        try:
            with Worker(config) as worker:
                trace = worker.probe(probe)
        except OracleRefused as error:
            not_built = error.kind == errors.NotBuilt.__name__
            verdicts[stack] = ("not built" if not_built else f"refused: {error}", None)
            continue
        require_scheme(trace, config.kv)
        difference = compare_traces(golden, trace)
        verdicts[stack] = ("equal" if difference is None else "differs", difference)
    ours, theirs = verdicts["engine"], verdicts[entry["stack"]]
    return Verified(name, ours[0], theirs[0], ours[1], theirs[1])


def _config(stack: str, model: str, kv: str, chunk: int) -> StackConfig:
    blas = "openblas" if machine().blas == "openblas" else "bundled"
    return StackConfig(stack=stack, model=model, kv=mixed_kv() if kv == "mixed" else kv, chunk=chunk, blas=blas)


def _blob(tensors: Mapping[str, Any]) -> bytes:
    import mlx.core as mx

    with tempfile.TemporaryDirectory() as scratch:
        path = Path(scratch) / "golden.safetensors"
        mx.save_safetensors(str(path), dict(tensors))
        return path.read_bytes()


def write_whole(path: Path, content: bytes) -> None:
    """Write in the same folder under another name, then rename: a reader never sees half a file."""
    with tempfile.NamedTemporaryFile(dir=path.parent, prefix=f".{path.name}-", delete=False) as f:
        f.write(content)
        f.flush()
        os.fsync(f.fileno())
    os.chmod(f.name, 0o644)
    os.replace(f.name, path)


def source_commit() -> str:
    """The source commit that recorded, "+changes" when oracles/ differs from it, or "unknown" outside a checkout."""
    here = str(Path(__file__).parent)

    def git(*arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(["git", "-C", here, *arguments], capture_output=True, text=True, check=False)

    head = git("rev-parse", "HEAD")
    if head.returncode != 0:
        return "unknown"
    return head.stdout.strip() + ("+changes" if git("status", "--porcelain", "--", here).stdout.strip() else "")
