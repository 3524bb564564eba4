"""Small GGUF files, written with the `gguf` package, and the values they stand for."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import numpy as np
from gguf import GGMLQuantizationType, GGUFWriter, TokenType
from gguf.quants import dequantize, quantize

HIDDEN, FF, HEADS, KV_HEADS, LAYERS = 64, 96, 4, 2, 3
MERGES = ("t h", "th e", "Ġ the", "Ġ a", "a n", "an d", "Ġ and", "1 2")
SPECIAL = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
TEMPLATE = (
    "{% for m in messages %}{{ '<|im_start|>' + m['role'] + '\n' + m['content'] + '<|im_end|>\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)


@cache
def alphabet() -> list[str]:
    """The 256 symbols of byte-level BPE, by byte."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    rest = [b for b in range(256) if b not in printable]
    symbols = {b: chr(b) for b in printable} | {b: chr(256 + i) for i, b in enumerate(rest)}
    return [symbols[b] for b in range(256)]


@cache
def vocabulary() -> list[str]:
    """Specials, 256 bytes, the merged words, one user-defined token and one unused."""
    return [*SPECIAL, *alphabet(), *(m.replace(" ", "") for m in MERGES), "<tool>", "[PAD268]"]


def kind_of(name: str) -> GGMLQuantizationType:
    """All five types in one file: an 8-bit embedding, F16 in one place, Q4_0 and Q4_1 elsewhere, F32 norms."""
    kinds = GGMLQuantizationType
    if "norm" in name:
        return kinds.F32
    if name == "token_embd.weight" or "ffn_down" in name:
        return kinds.Q8_0
    if name == "blk.1.attn_v.weight":
        return kinds.F16
    return kinds.Q4_0 if "blk.0" in name else kinds.Q4_1


def shapes() -> dict[str, tuple[int, ...]]:
    width = HIDDEN // HEADS
    layer = {
        "attn_norm": (HIDDEN,),
        "attn_q": (HIDDEN, HIDDEN),
        "attn_k": (KV_HEADS * width, HIDDEN),
        "attn_v": (KV_HEADS * width, HIDDEN),
        "attn_output": (HIDDEN, HIDDEN),
        "ffn_norm": (HIDDEN,),
        "ffn_gate": (FF, HIDDEN),
        "ffn_up": (FF, HIDDEN),
        "ffn_down": (HIDDEN, FF),
    }
    named = {f"blk.{i}.{n}.weight": s for i in range(LAYERS) for n, s in layer.items()}
    return {"token_embd.weight": (len(vocabulary()), HIDDEN), **named, "output_norm.weight": (HIDDEN,)}


def write_gguf(
    path: Path,
    *,
    architecture: str = "llama",
    pre: str = "smollm",
    tokenizer: str = "gpt2",
    template: str | None = TEMPLATE,
    add_bos: bool = False,
    extra: dict[str, int] | None = None,
    kinds: dict[str, GGMLQuantizationType] | None = None,
    leave_out: str = "",
) -> dict[str, np.ndarray]:
    """Write a random llama; returns the values by GGUF name, as the `gguf` package unpacks them (GGUF's row order)."""
    random = np.random.default_rng(7)
    writer = GGUFWriter(path, architecture)
    writer.add_block_count(LAYERS)
    writer.add_context_length(128)
    writer.add_embedding_length(HIDDEN)
    writer.add_feed_forward_length(FF)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(KV_HEADS)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_freq_base(10000.0)
    for key, value in (extra or {}).items():
        writer.add_uint32(key, value)
    tokens = vocabulary()
    types = [TokenType.CONTROL] * len(SPECIAL) + [TokenType.NORMAL] * (len(tokens) - len(SPECIAL) - 2)
    writer.add_tokenizer_model(tokenizer)
    writer.add_tokenizer_pre(pre)
    writer.add_token_list(tokens)
    writer.add_token_types([*types, TokenType.USER_DEFINED, TokenType.UNUSED])
    writer.add_token_merges(list(MERGES))
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_add_bos_token(add_bos)
    if template is not None:
        writer.add_chat_template(template)
    values: dict[str, np.ndarray] = {}
    for name, shape in shapes().items():
        if name == leave_out:
            continue
        kind = (kinds or {}).get(name, kind_of(name))
        array = random.normal(size=shape).astype(np.float32) * np.float32(0.2)
        stored = quantize(array, kind)
        values[name] = dequantize(stored, kind).astype(np.float32).reshape(shape)
        writer.add_tensor(name, stored, raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return values
