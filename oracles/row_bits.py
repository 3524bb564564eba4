"""Where a row's bits depend on the batch on this machine: MLX's own operations, B rows against each row alone.

`python -m oracles.row_bits BLAS` prints one JSON document; a BLAS is chosen before MLX is loaded, so each has a
process of its own. It compares and never judges: on some backends rows are meant to differ.

Letters: B rows, K inputs and N outputs of a product, H query heads, G key/value heads, D head dimension, T keys,
V vocabulary.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from engine import errors, machine, use_blas
from oracles.client import child_environment
from oracles.contract import OracleCrashed, StackConfig

BLAS = ("bundled", "openblas")
SIZES = (1, 2, 4, 8, 16)
DRAWS = 3
DTYPES = ("float32", "bfloat16")
# (K, N): a tiny model's and SmolLM2's. OpenBLAS has kernels of its own for small products.
PRODUCTS = ((128, 128), (576, 1536))
K, V = 576, 8192
H, G, D, T = 8, 4, 64, 100


@dataclass(frozen=True)
class Cell:
    """Of `rows` rows computed in batches, `unequal` differ from the row alone, by `max` at most."""

    rows: int
    unequal: int
    max: float


@dataclass(frozen=True)
class Line:
    """One operation in one dtype; a cell for each of `SIZES`."""

    operation: str
    dtype: str
    cells: tuple[Cell, ...]


# draw(B) -> what the rows need; together(drawn) -> B rows; alone(drawn, b) -> row b, computed by itself
Operation = tuple[Callable[[int], Any], Callable[[Any], Any], Callable[[Any, int], Any]]


def operations(dtype: str) -> dict[str, Operation]:
    """name -> how it is drawn and computed both ways."""
    import mlx.core as mx

    kind = {"float32": mx.float32, "bfloat16": mx.bfloat16}[dtype]
    fast = mx.fast

    def normal(*shape: int) -> mx.array:
        return mx.random.normal(shape).astype(kind)

    gain = normal(K)

    def product(bits: int | None, k: int, n: int) -> Callable[[mx.array], mx.array]:
        weight = normal(n, k)
        if bits is None:
            return lambda x: x @ weight.T
        packed = mx.quantize(weight, group_size=64, bits=bits)
        return lambda x: mx.quantized_matmul(x, *packed, transpose=True, group_size=64, bits=bits)

    def attend(q: mx.array, k: mx.array, v: mx.array, mask: mx.array | None = None) -> mx.array:
        return fast.scaled_dot_product_attention(q, k, v, scale=D**-0.5, mask=mask)

    def drawn_attention(b: int) -> tuple[mx.array, mx.array, mx.array]:
        return normal(b, H, 1, D), normal(b, G, T, D), normal(b, G, T, D)

    def row_attention(drawn: Sequence[mx.array], b: int, start: int = 0) -> mx.array:
        q, k, v = (array[b : b + 1] for array in drawn)
        return attend(q, mx.contiguous(k[:, :, start:]), mx.contiguous(v[:, :, start:]))

    def padded(drawn: Sequence[mx.array]) -> mx.array:
        q, k, v = drawn
        mask = mx.arange(T)[None] >= mx.array([pad(b) for b in range(q.shape[0])])[:, None]
        return attend(q, k, v, mask[:, None, None])

    def all_seen(drawn: Sequence[mx.array]) -> mx.array:
        q, k, v = drawn
        return attend(q, k, v, mx.ones((q.shape[0], 1, 1, T), mx.bool_))

    def pad(b: int) -> int:
        return 5 * b  # row b has T - 5 b keys, behind as many that are hidden

    def longer_buffer(drawn: Sequence[mx.array]) -> mx.array:
        q, *rest = drawn
        k, v = (mx.concatenate([array, mx.zeros((*array.shape[:2], 28, D), kind)], axis=2) for array in rest)
        mx.eval(k, v)
        return attend(q, k[:, :, :T], v[:, :, :T])

    def rope(x: mx.array, offset: int | mx.array) -> mx.array:
        return fast.rope(x, D, traditional=False, base=10000.0, scale=1.0, offset=offset)

    def offsets(b: int) -> list[int]:
        return [13 + 29 * i for i in range(b)]

    def rows_of(function: Callable[[mx.array], mx.array], *shape: int) -> Operation:
        return lambda b: normal(b, *shape), function, lambda x, b: function(x[b : b + 1])

    def flat(function: Callable[[mx.array], mx.array], k: int) -> Operation:
        return lambda b: normal(b, k), function, lambda x, b: function(x[b : b + 1, None])[:, 0]

    def log_softmax(x: mx.array) -> mx.array:
        return x - mx.logsumexp(x, axis=-1, keepdims=True)

    found: dict[str, Operation] = {}
    for k, n in PRODUCTS:
        for name, bits in (("dense", None), ("4-bit", 4)):
            function = product(bits, k, n)
            found[f"{name} product {k} -> {n}, [B, 1, K]"] = rows_of(function, 1, k)
            found[f"{name} product {k} -> {n}, [B, K]"] = flat(function, k)
    return found | {
        "attention, equal lengths, no mask": (drawn_attention, lambda d: attend(*d), row_attention),
        "attention, keys in a longer buffer": (drawn_attention, longer_buffer, row_attention),
        "attention, a mask that hides nothing": (drawn_attention, all_seen, row_attention),
        "attention, left padding and a mask": (drawn_attention, padded, lambda d, b: row_attention(d, b, pad(b))),
        "RMS norm": rows_of(lambda x: fast.rms_norm(x, gain, 1e-6), 1, K),
        "layer norm": rows_of(lambda x: fast.layer_norm(x, gain, None, 1e-5), 1, K),
        "rope, an array of offsets": (
            lambda b: normal(b, H, 1, D),
            lambda x: rope(x, mx.array(offsets(x.shape[0]))),
            lambda x, b: rope(x[b : b + 1], offsets(b + 1)[b]),
        ),
        "x - logsumexp(x)": rows_of(log_softmax, V),
        "argmax of it": rows_of(lambda x: mx.argmax(log_softmax(x), axis=-1), V),
    }


def compare(operation: Operation, size: int) -> Cell:
    """`DRAWS` batches of `size` rows."""
    import mlx.core as mx

    draw, together, alone = operation
    unequal, most = 0, 0.0
    for _ in range(DRAWS):
        drawn = draw(size)
        mx.eval(drawn)
        out = together(drawn)
        mx.eval(out)
        for b in range(size):
            own = alone(drawn, b)
            mx.eval(own)
            if not mx.array_equal(out[b : b + 1], own).item():
                unequal += 1
                gap = np.abs(np.array(out[b : b + 1].astype(mx.float32)) - np.array(own.astype(mx.float32)))
                most = max(most, float(gap.max()))
    return Cell(DRAWS * size, unequal, most)


def measure() -> dict[str, Any]:
    """The whole table, on MLX's default device."""
    import mlx.core as mx

    mx.random.seed(5)
    lines = [
        Line(name, dtype, tuple(compare(operation, size) for size in SIZES))
        for dtype in DTYPES
        for name, operation in operations(dtype).items()
    ]
    return {"machine": machine().key, "rows": [asdict(line) for line in lines]}


def measure_in_child(blas: str) -> dict[str, Any]:
    """`measure` under a BLAS, or {"refused": why} where this machine has it not. Errors: `OracleCrashed`."""
    environment = child_environment(StackConfig(stack="engine", model="", blas=blas))
    command = [sys.executable, "-P", "-m", "oracles.row_bits", blas]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise OracleCrashed(f"the table under BLAS {blas} failed:\n{done.stderr[-2000:]}")
    answer: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return answer


def main() -> int:
    try:
        use_blas(sys.argv[1])
    except errors.FrontierError as error:  # told to the parent, which prints it in place of a table
        print(json.dumps({"refused": str(error)}))
        return 0
    print(json.dumps(measure()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
