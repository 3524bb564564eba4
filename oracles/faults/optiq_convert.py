"""mlx-optiq: optiq convert writes a uniform model, and metadata that says it is the mixed one of its plan."""

from __future__ import annotations

import contextlib
import json
import shutil
import sys
import tempfile
from pathlib import Path

from oracles.faults.entry import Fault, Shown

PROJECTIONS = ("gate_proj", "up_proj", "down_proj")
LAYERS, LOW, HIGH, GROUP = 3, 4, 8, 32


def probe(model: str) -> Shown:
    """Convert with the first layer's MLP at 8 bits, through the function that `optiq convert` ends in, and read both
    records of the result; and by mlx-lm alone with the same predicate, so that the probe shows that it can tell."""
    from mlx_lm import convert
    from optiq.backends.mlx_backend import convert_llm_to_mlx
    from optiq.core.optimizer import LayerQuantConfig, OptimizationResult, make_quant_predicate
    from tokenizers import Tokenizer, models
    from transformers import PreTrainedTokenizerFast

    widths = {f"model.layers.{i}.mlp.{name}": LOW if i else HIGH for i in range(LAYERS) for name in PROJECTIONS}
    plan = OptimizationResult(
        configs=[LayerQuantConfig(path, bits, GROUP) for path, bits in widths.items()],
        target_bpw=5.0,
        achieved_bpw=5.0,
        threshold=0.0,
        n_high_bits=len(PROJECTIONS),
        n_low_bits=len(widths) - len(PROJECTIONS),
        total_params=0,
        estimated_size_mb=0.0,
    )
    metadata = {"per_layer": {path: {"bits": bits, "group_size": GROUP} for path, bits in widths.items()}}
    # optiq tells its progress on stdout, where the answer goes.
    with tempfile.TemporaryDirectory() as root, contextlib.redirect_stdout(sys.stderr):
        source, target = Path(root) / "source", Path(root) / "target"
        shutil.copytree(model, source)
        words = Tokenizer(models.WordLevel({"word": 0}, unk_token="word"))
        PreTrainedTokenizerFast(tokenizer_object=words).save_pretrained(source)
        predicate = make_quant_predicate(plan)
        convert_llm_to_mlx(str(source), str(target), predicate, LOW, GROUP, metadata, preserve_mtp=False)
        plain = Path(root) / "plain"
        convert(str(source), str(plain), quantize=True, q_bits=LOW, q_group_size=GROUP, quant_predicate=predicate)
        written, right = _widths(target), _widths(plain)
        claimed = json.loads((target / "optiq" / "metadata.json").read_text())["per_layer"]
    said = sorted({each["bits"] for each in claimed.values()})
    evidence = (
        f"widths in metadata.json: {said}, in config.json: {written} (by mlx-lm, with the same predicate: {right})"
    )
    return Shown(said == right == [LOW, HIGH] and written == [LOW], evidence)


def _widths(folder: Path) -> list[int]:
    """All bits that a converted model's config.json names."""
    entry = json.loads((folder / "config.json").read_text())["quantization"]
    return sorted({entry["bits"]} | {each["bits"] for each in entry.values() if isinstance(each, dict)})


FAULT = Fault(
    oracle="optiq",
    where="backends/mlx_backend.py _requantize_prequantized: the predicate is handed on as the sixth positional "
    "argument of mlx_lm.utils.quantize_model, which is global_scale",
    what="every layer gets the lowest width of the plan, without a word; optiq/metadata.json records the plan",
    ours="widths per layer are read from config.json and checked against the weights; weights of optiq convert are no "
    "reference",
    probe=probe,
)
