"""Which cells `frontier parity` runs: the tiny families in every form, and a real model."""

from __future__ import annotations

import json
import os
from pathlib import Path

import numpy as np

from engine import errors, load_tokenizer, resolve_model
from oracles.contract import GenerateProbe, Probe
from oracles.parity import Cell
from oracles.tiny import FAMILIES, RECIPES, VARIANTS, tiny_model, tiny_root

PROMPT, STEPS, FREE_STEPS = 40, 12, 24
MODEL_PROMPT, MODEL_STEPS = 64, 32
QUICK_STEPS = 8
SAMPLED = {"temperature": 0.8, "top_p": 0.9, "min_p": 0.02, "top_k": 40, "repetition_penalty": 1.2, "seed": 11}
# Written for this project; real words, so that a real model's next tokens are not all alike.
TEXT = (
    "A measurement is only as good as the account of how it was taken. We write down the machine, the versions and "
    "the order of the runs before we write down a number, and we keep the runs that went against us. The river was "
    "high that spring, and the ferry stayed on the far bank for nine days; nobody in the village had salt, and the "
    "baker, who had expected two sacks of flour on Monday, closed his shop and went fishing with the schoolmaster."
)


def random_ids(vocab: int, count: int, seed: int = 0) -> tuple[int, ...]:
    """Seeded token ids from 2 on; 1 is the tiny models' end of sequence."""
    return tuple(int(i) for i in np.random.default_rng(seed).integers(2, vocab, count))


def kv_notation(family: str, bits: int) -> str:
    """Uniform KV for a tiny model: the group size that its head size allows."""
    return f"kv{bits}" if RECIPES[family].head_dim % 64 == 0 else f"kv{bits}:g32"


def free_run(ids: tuple[int, ...], steps: int, **sampling: object) -> GenerateProbe:
    """A free-running probe that does not end at an end-of-sequence token."""
    return GenerateProbe(token_ids=ids, sampling={"max_tokens": steps, "ignore_eos": True, **sampling})


def tiny_group(
    family: str, dtype: str, quant: str | None, kv: str, chunk: int, kinds: tuple[str, ...], reference: str = "mlx-lm"
) -> list[Cell]:
    """The cells of one tiny model in one configuration; kinds from forced, headed, greedy, sampled."""
    ids = random_ids(RECIPES[family].vocab, PROMPT + STEPS)
    probes: dict[str, tuple[Probe | GenerateProbe, int]] = {
        "forced": (Probe(token_ids=ids, tail=STEPS), STEPS),
        # One token converts the cache; everything after it attends the converted one.
        "headed": (Probe(token_ids=ids, head=1, tail=1), 1),
        "greedy": (free_run(ids[:PROMPT], FREE_STEPS), FREE_STEPS),
        "sampled": (free_run(ids[:PROMPT], FREE_STEPS, **SAMPLED), FREE_STEPS),
    }
    folder = str(tiny_model(family, dtype=dtype, quant=quant))
    label = dtype if quant is None else f"{dtype} {quant}"
    return [
        Cell(
            name=f"tiny-{family}",
            dtype=label,
            model=folder,
            kv=kv,
            chunk=chunk,
            probe=probes[kind][0],
            steps=probes[kind][1],
            reference=reference,
        )
        for kind in kinds
    ]


def mixed_kv() -> str:
    """The notation of a per-layer plan for the tiny models: 8 bit, native, 4 bit."""
    path = tiny_root() / "kv-8-native-4.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    plan = [{"layer_idx": 0, "bits": 8, "group_size": 32}, {"layer_idx": 2, "bits": 4, "group_size": 32}]
    staged = path.with_suffix(f".{os.getpid()}")
    staged.write_text(json.dumps(plan) + "\n", encoding="utf-8")
    os.replace(staged, path)
    return f"mixed:{path}"


def tiny_cells(*, quick: bool) -> list[Cell]:
    """Seven families in fp32, bf16 and 4 bit: sampled runs, quantised KV at two chunk sizes; mixed KV.

    Forced and greedy runs over native KV are the architectures' (`oracles.arch`), for every family there is.
    """
    cells: list[Cell] = []
    free = ("forced", "greedy", "sampled")
    for family in FAMILIES:
        kv8, kv4 = kv_notation(family, 8), kv_notation(family, 4)
        cells += tiny_group(family, "float32", None, "native", 7, free if quick else ("sampled",))
        if quick:
            continue
        cells += tiny_group(family, "float32", None, kv8, 2048, free)
        cells += tiny_group(family, "float32", None, kv8, 7, ("forced", "headed"))
        cells += tiny_group(family, "float32", None, kv4, 7, free)
        cells += tiny_group(family, "bfloat16", None, "native", 2048, ("sampled",))
        cells += tiny_group(family, "bfloat16", None, kv8, 7, ("forced", "greedy"))
        cells += tiny_group(family, "float32", "q4g64", "native", 2048, ("sampled",))
        cells += tiny_group(family, "float32", "q4g64", kv4, 7, ("forced", "greedy"))
    if quick:
        cells += tiny_group("llama", "bfloat16", "q4g64", "kv8", 7, ("forced", "headed", "sampled"))
        cells += tiny_group("gemma2", "float32", None, kv_notation("gemma2", 8), 7, ("forced",))
    else:
        for variant in VARIANTS:
            cells += tiny_group(variant, "bfloat16", None, kv_notation(variant, 8), 7, ("forced",))
        cells += tiny_group("llama", "float16", None, "kv8", 7, free)
        cells += tiny_group("llama", "float32", "mixed", "kv4:start=20", 7, free)
    cells += _mixed_kv() + _between_shapes()
    return cells


def _mixed_kv() -> list[Cell]:
    """A plan per layer, as mlx-optiq runs it."""
    return tiny_group("llama", "float32", None, mixed_kv(), 7, ("forced",), "optiq")


def _between_shapes() -> list[Cell]:
    """The engine at chunk 7 against itself at chunk 2048: claimed with the bundled BLAS only."""
    ids = random_ids(RECIPES["llama"].vocab, PROMPT + STEPS)
    return [
        Cell(
            name="tiny-llama",
            dtype="float32",
            model=str(tiny_model("llama")),
            probe=Probe(token_ids=ids, tail=STEPS),
            steps=STEPS,
            chunk=7,
            reference="engine",
            reference_chunk=2048,
        )
    ]


def model_cells(model: str, *, quick: bool) -> list[Cell]:
    """A real model, packed as it is: native, kv8 and kv4 from the start, forced, greedy and sampled.

    Raises `errors.UnsupportedConfig` when the model's tokenizer makes too few tokens of the probe text.
    """
    folder = Path(resolve_model(model))
    needed = MODEL_PROMPT + MODEL_STEPS
    ids = tuple(load_tokenizer(folder).encode(TEXT))[:needed]
    if len(ids) < needed:
        raise errors.UnsupportedConfig(f"{model}: the probe text has {len(ids)} tokens, {needed} are needed")
    dtype = stored_dtype(folder)

    def cell(kv: str, probe: Probe | GenerateProbe, steps: int) -> Cell:
        return Cell(name=model, dtype=dtype, model=str(folder), kv=kv, probe=probe, steps=steps)

    if quick:
        short = ids[: MODEL_PROMPT + QUICK_STEPS]
        return [cell("native", Probe(token_ids=short, tail=QUICK_STEPS), QUICK_STEPS)]
    cells = []
    for kv in ("native", "kv8", "kv4"):
        cells += [
            cell(kv, Probe(token_ids=ids, tail=MODEL_STEPS), MODEL_STEPS),
            cell(kv, free_run(ids[:MODEL_PROMPT], FREE_STEPS), FREE_STEPS),
            cell(kv, free_run(ids[: MODEL_PROMPT // 2], FREE_STEPS // 2, **SAMPLED), FREE_STEPS // 2),
        ]
    return cells


def stored_dtype(folder: Path) -> str:
    """How a reader calls the model's form: the config's dtype and the packing."""
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    name = str(config.get("torch_dtype", config.get("dtype", "as stored")))
    packing = config.get("quantization")
    return name if packing is None else f"{name} q{packing['bits']}g{packing['group_size']}"
