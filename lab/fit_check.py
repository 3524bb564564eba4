"""`make fit-check`: predicted against measured peaks of five models under three KV schemes.

The built-in model, and random models of real shape in small: plain, rings beside full layers, rings with sinks and
experts, recurrent states beside full layers.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator

from lab.commands.fit import ACCURACY, fit_one
from lab.console import Output, size

SEEDED = ("llama", "gemma3_text", "gpt_oss", "qwen3_next")
BUILTIN = "smollm2-135m-instruct"
SCHEMES = ("native", "kv8:g32", "kv4:g32")
CONTEXT, CHUNK = 1000, 128


def models() -> Iterator[tuple[str, str]]:
    """Name and place of each model."""
    from lab.graph_models import build

    for name, folder in build(SEEDED, "small", "float32").items():
        yield name, str(folder)
    yield BUILTIN, BUILTIN


def main() -> int:
    """Print a row a model and scheme; exit code 1 when a prediction is more than 5 % away."""
    from engine import use_blas

    blas = use_blas(sys.argv[1] if len(sys.argv) > 1 else "auto")
    quiet, good = Output(as_json=True), True
    print(f"context {CONTEXT} in chunks of {CHUNK}, BLAS {blas}")
    print("| model | KV | weights | KV at the end | transients | predicted | measured | error |\n" + "|---" * 8 + "|")
    for name, place in models():
        for kv in SCHEMES:
            doc = fit_one(quiet, place, {"kv": kv, "prefill_chunk": CHUNK}, CONTEXT, None, check=True)
            at = max(doc["moments"], key=lambda moment: moment["peak_bytes"])
            good = good and abs(doc["error"]) <= ACCURACY
            counts = (doc["weights_bytes"], doc["kv_bytes"], at["transient_bytes"], doc["peak_bytes"])
            cells = " | ".join(map(size, (*counts, doc["measured_bytes"])))
            print(f"| {name} | {kv} | {cells} | {100 * doc['error']:+.1f} % |", flush=True)
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
