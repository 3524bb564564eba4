"""mlx-optiq: packed caches in a batch: what their rows are packed to, and two crashes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from oracles.faults.entry import Fault, Shown

LAYERS, BITS, GROUP = 3, 4, 32
# What a batch of cold rows is packed to, whatever was asked.
DEFAULT = (8, 64)
PROMPT, OTHER = [2, 3, 4, 5, 6, 7], [8, 9, 10]
TOKENS = 4


def _model(folder: str, *, fused: bool = False) -> Any:
    """The model, with optiq's hooks installed in the order of `optiq serve` and BITS asked for every layer."""
    from mlx_lm.utils import load_model
    from optiq.runtime import fused_quant_sdpa
    from optiq.serve import _LayerQuantConfig, install_mixed_kv

    model, _ = load_model(Path(folder))
    if fused:
        fused_quant_sdpa.install()
    install_mixed_kv([_LayerQuantConfig(i, BITS, GROUP) for i in range(LAYERS)], 0)
    return model


def _batch(model: Any) -> Any:
    """The server's batch generator, which optiq patches."""
    from mlx_lm.server import BatchGenerator

    return BatchGenerator(model, max_tokens=TOKENS)


def _alone(model: Any, bits: int, group_size: int) -> np.ndarray:
    """Log-probabilities [V] after PROMPT, over a sequential cache packed on write, cut as a batch cuts it."""
    import mlx.core as mx
    from mlx_lm.models.cache import QuantizedKVCache

    caches = [QuantizedKVCache(group_size, bits) for _ in range(LAYERS)]
    model(mx.array([PROMPT[:-1]]), cache=caches)
    logits = model(mx.array([PROMPT[-1:]]), cache=caches)[0, -1]
    return np.array(logits - mx.logsumexp(logits))


def probe_cold(model: str) -> Shown:
    """A cold request in a batch of one, against the sequential cache of the asked and of the default width."""
    built = _model(model)
    batch = _batch(built)
    batch.insert([PROMPT])
    got = np.array(batch.next_generated()[0].logprobs)
    batch.close()
    asked, default = (float(np.abs(got - _alone(built, *each)).max()) for each in ((BITS, GROUP), DEFAULT))
    evidence = f"{BITS} bits in groups of {GROUP} asked: max|diff| {asked:.2g} to them, {default:.2g} to 8 bits of 64"
    return Shown(asked > 0 and default == 0, evidence)


def probe_warm(model: str) -> Shown:
    """A cold request that joins a row with a history: one of the default width, which works, and one as asked."""
    built = _model(model)
    right, asked = (_joined(built, *each) for each in (DEFAULT, (BITS, GROUP)))
    evidence = f"history of 4 bits: {asked.evidence} (of 8 bits in groups of 64: {right.evidence})"
    return Shown(asked.live and not right.live, evidence)


def _joined(model: Any, bits: int, group_size: int) -> Shown:
    import mlx.core as mx
    from optiq.runtime.kv.batch import MergeableQuantizedKVCache

    history = [MergeableQuantizedKVCache(group_size, bits) for _ in range(LAYERS)]
    mx.eval(model(mx.array([OTHER]), cache=history))
    batch = _batch(model)
    batch.insert([PROMPT], caches=[history])
    batch.next_generated()
    batch.insert([OTHER])
    return _outcome(batch)


def probe_fused(model: str) -> Shown:
    """Two cold requests, with fused attention installed first."""
    batch = _batch(_model(model, fused=True))
    batch.insert([PROMPT, OTHER])
    return _outcome(batch)


def _outcome(batch: Any) -> Shown:
    """Run a batch of two to its end."""
    rows: set[int] = set()
    try:
        while answers := batch.next_generated():
            rows.update(answer.uid for answer in answers)
    except ValueError as error:
        return Shown(True, f"ValueError: {str(error).splitlines()[0]}")
    finally:
        batch.close()
    return Shown(False, f"{len(rows)} rows run")


COLD_BITS = Fault(
    oracle="optiq",
    where="runtime/kv/batch.py BatchQuantizedKVCache.merge (the width of the first cache that holds something)",
    what="requests without a history are packed to 8 bits in groups of 64, whatever --kv-config or --kv-bits asks",
    ours="each layer gets the width asked or the request is refused at load; batches are not built yet, one row runs",
    probe=probe_cold,
)
WARM_BESIDE_COLD = Fault(
    oracle="optiq",
    where="runtime/kv/batch.py BatchQuantizedKVCache.extend (joins words of both widths as they are)",
    what="a row with a history of the width asked and a request without one cannot share a batch: it raises",
    ours="one plan gives a layer one width, with or without a history; batches are not built yet, one row runs",
    probe=probe_warm,
)
FUSED_BESIDE_MASK = Fault(
    oracle="optiq",
    where="runtime/kv/rotating.py _patch_quantized_sdpa_mask_for_gqa (expands the mask unless the installed function's "
    "source does; the fused one leaves that to mlx-lm's, so it is done twice)",
    what="with fused attention, the default of optiq serve, two requests at once to a model with grouped queries raise",
    ours="a mask is [L, S] and fits every head as it is; batches are not built yet, one row runs",
    probe=probe_fused,
)
