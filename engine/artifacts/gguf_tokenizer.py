"""The tokenizer inside a GGUF file, as tokenizer.json and its companions.

Byte-level BPE only (tokenizer.ggml.model = gpt2). The pre-tokenizers are those that the named families publish in
their own tokenizer.json; llama.cpp knows them by the same names (llama-vocab.cpp).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from engine.errors import CorruptFile, UnsupportedConfig

# tokenizer.ggml.token_type
UNKNOWN, CONTROL, USER_DEFINED, UNUSED = 2, 3, 4, 5

LLAMA3_SPLIT = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
QWEN2_SPLIT = LLAMA3_SPLIT.replace(r"\p{N}{1,3}", r"\p{N}")


def _gpt2() -> Any:
    from tokenizers import pre_tokenizers as p

    return p.ByteLevel(add_prefix_space=False, use_regex=True)


def _single_digits() -> Any:
    from tokenizers import pre_tokenizers as p

    return p.Sequence([p.Digits(individual_digits=True), p.ByteLevel(add_prefix_space=False, use_regex=True)])


def _split(pattern: str) -> Any:
    from tokenizers import Regex
    from tokenizers import pre_tokenizers as p

    split = p.Split(Regex(pattern), behavior="isolated")
    return p.Sequence([split, p.ByteLevel(add_prefix_space=False, use_regex=False)])


# tokenizer.ggml.pre -> how text is cut before BPE
PRE_TOKENIZERS: dict[str, Callable[[], Any]] = {
    "gpt-2": _gpt2,
    "smollm": _single_digits,
    "starcoder": _single_digits,
    "refact": _single_digits,
    "llama-bpe": lambda: _split(LLAMA3_SPLIT),
    "llama3": lambda: _split(LLAMA3_SPLIT),
    "llama-v3": lambda: _split(LLAMA3_SPLIT),
    "qwen2": lambda: _split(QWEN2_SPLIT),
}
LLAMA3_NAMES = ("llama-bpe", "llama3", "llama-v3")  # whole words come before merges; BOS by default


def check_tokenizer(path: Path, metadata: Mapping[str, Any]) -> None:
    """Raise UnsupportedConfig or CorruptFile for a tokenizer that `write_tokenizer` cannot reproduce."""
    model, pre = metadata.get("tokenizer.ggml.model"), metadata.get("tokenizer.ggml.pre")
    if model != "gpt2":
        raise UnsupportedConfig(f"{path}: tokenizer.ggml.model={model!r} is not supported; supported: gpt2 (BPE)")
    if pre not in PRE_TOKENIZERS:
        raise UnsupportedConfig(
            f"{path}: tokenizer.ggml.pre={pre!r} is not supported; supported: {', '.join(PRE_TOKENIZERS)}"
        )
    if metadata.get("tokenizer.ggml.add_space_prefix"):
        raise UnsupportedConfig(f"{path}: tokenizer.ggml.add_space_prefix=True is not supported; supported: False")
    if metadata.get("tokenizer.ggml.add_eos_token"):
        raise UnsupportedConfig(f"{path}: tokenizer.ggml.add_eos_token=True is not supported; supported: False")
    tokens, types = metadata.get("tokenizer.ggml.tokens"), metadata.get("tokenizer.ggml.token_type")
    if not isinstance(tokens, list) or not isinstance(types, list) or len(tokens) != len(types):
        raise CorruptFile(path, "tokenizer.ggml.tokens and tokenizer.ggml.token_type must be lists of one length")
    merges = metadata.get("tokenizer.ggml.merges")
    if not isinstance(merges, list) or any(merge.count(" ") != 1 for merge in merges):
        raise CorruptFile(path, "tokenizer.ggml.merges must be pairs of tokens")
    for name in ("bos", "eos", "unknown", "padding"):
        token_id = metadata.get(f"tokenizer.ggml.{name}_token_id")
        if token_id is not None and not 0 <= token_id < len(tokens):
            raise CorruptFile(path, f"tokenizer.ggml.{name}_token_id={token_id} is outside the {len(tokens)} tokens")


def write_tokenizer(folder: Path, path: Path, metadata: Mapping[str, Any]) -> None:
    """Write tokenizer.json, tokenizer_config.json and, if there is one, chat_template.jinja into `folder`.

    path: the GGUF file, for messages. Raises what `check_tokenizer` raises.
    """
    check_tokenizer(path, metadata)
    tokenizer = _build(path, metadata)
    tokenizer.save(str(folder / "tokenizer.json"))
    tokens: list[str] = metadata["tokenizer.ggml.tokens"]
    config: dict[str, Any] = {
        # The generic class takes tokenizer.json as it is; named ones build their own pre-tokenizer.
        "tokenizer_class": "PreTrainedTokenizerFast",
        "clean_up_tokenization_spaces": False,
    }
    for name, field in (("bos", "bos_token"), ("eos", "eos_token"), ("unknown", "unk_token"), ("padding", "pad_token")):
        token_id = metadata.get(f"tokenizer.ggml.{name}_token_id")
        if token_id is not None:
            config[field] = tokens[token_id]
    if "llama.context_length" in metadata:
        config["model_max_length"] = metadata["llama.context_length"]
    (folder / "tokenizer_config.json").write_text(json.dumps(config, indent=2, ensure_ascii=False) + "\n")
    template = metadata.get("tokenizer.chat_template")
    if template:
        (folder / "chat_template.jinja").write_text(template, encoding="utf-8")


def _build(path: Path, metadata: Mapping[str, Any]) -> Any:
    from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, processors

    tokens, types = metadata["tokenizer.ggml.tokens"], metadata["tokenizer.ggml.token_type"]
    pre = metadata["tokenizer.ggml.pre"]
    vocab = {token: i for i, (token, kind) in enumerate(zip(tokens, types, strict=True)) if kind != UNUSED}
    merges = [tuple(merge.split(" ")) for merge in metadata["tokenizer.ggml.merges"]]
    for pair in merges:
        for part in (*pair, "".join(pair)):
            if part not in vocab:
                raise CorruptFile(path, f"tokenizer.ggml.merges names {part!r}, which is not in the vocabulary")
    tokenizer = Tokenizer(models.BPE(vocab=vocab, merges=merges, ignore_merges=pre in LLAMA3_NAMES))
    if pre == "qwen2":
        tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = PRE_TOKENIZERS[pre]()
    tokenizer.decoder = decoders.ByteLevel()
    bos = metadata.get("tokenizer.ggml.bos_token_id")
    if metadata.get("tokenizer.ggml.add_bos_token", pre in LLAMA3_NAMES) and bos is not None:
        piece = tokens[bos]
        tokenizer.post_processor = processors.Sequence(
            [
                processors.ByteLevel(trim_offsets=False),
                processors.TemplateProcessing(
                    single=f"{piece}:0 $A:0",
                    pair=f"{piece}:0 $A:0 {piece}:1 $B:1",
                    special_tokens=[(piece, bos)],
                ),
            ]
        )
    added = [(t, kind) for t, kind in zip(tokens, types, strict=True) if kind in (UNKNOWN, CONTROL, USER_DEFINED)]
    special = [AddedToken(t, special=True, normalized=False) for t, kind in added if kind != USER_DEFINED]
    tokenizer.add_special_tokens(special)
    tokenizer.add_tokens([AddedToken(t, special=False, normalized=False) for t, k in added if k == USER_DEFINED])
    return tokenizer
