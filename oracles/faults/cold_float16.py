"""mlx-lm: float16 logprobs at a very low temperature overflow, and the draw becomes uniform over the vocabulary."""

from __future__ import annotations

from oracles.faults.entry import Fault, Shown

TEMPERATURE, VOCAB, DRAWS, BEST = 1e-5, 101, 16, 7


def probe(model: str) -> Shown:
    """One token has nearly all of the probability; at this temperature nothing else should ever be drawn."""
    import mlx.core as mx
    from mlx_lm.sample_utils import make_sampler

    logits = mx.zeros((1, VOCAB))
    logits[0, BEST] = 9.0
    logprobs = (logits - mx.logsumexp(logits, keepdims=True)).astype(mx.float16)
    mx.random.seed(0)
    sampler = make_sampler(temp=TEMPERATURE)
    drawn = [sampler(logprobs).item() for _ in range(DRAWS)]
    others = sum(token != BEST for token in drawn)
    return Shown(others > 0, f"temperature {TEMPERATURE} in float16: {others} of {DRAWS} draws are not the best token")


FAULT = Fault(
    oracle="mlx-lm",
    where="sample_utils.py categorical_sampling: logprobs * (1 / temp) is -inf for every token",
    what="below a temperature of about 1e-4, float16 sampling draws any token with equal chance",
    ours="below 2e-4 the product is taken in float32; from there up the bits are mlx-lm's",
    probe=probe,
)
