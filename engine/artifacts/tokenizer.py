"""The tokenizer of a model folder, with mlx-lm's conventions for prompts and chat templates."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from engine.artifacts.checkpoint import has_tokenizer, read_config, read_json
from engine.errors import CorruptFile, InvalidValue, ModelNotFound, TemplateMissing, UnsupportedConfig

# Vocabularies whose chat templates know a thinking mode (mlx-lm tokenizer_utils.py, _infer_thinking).
THINKING_MARKS = (
    ("<think>", "</think>"),
    ("<longcat_think>", "</longcat_think>"),
    ("<|think:start|>", "<|think:end|>"),
    ("<|channel>", "<channel|>"),
)
BYTE_TOKEN = re.compile(r"<0x[0-9A-Fa-f]{2}>")


class Tokenizer:
    """Text to token ids and back. Made by `load_tokenizer`.

    eos_ids: of the config (generation_config.json wins) and of the tokenizer. vocab_size: number of known tokens,
    added ones included. byte_ids: tokens that hold one raw byte (byte fallback); what a run of them decodes to can
    change until the run ends.
    """

    def __init__(self, backend: Any, config_eos_ids: frozenset[int], name: str) -> None:
        self._backend = backend
        self._name = name
        vocab: Mapping[str, int] = backend.get_vocab()
        own = backend.eos_token_id
        self.eos_ids = config_eos_ids if own is None else config_eos_ids | {int(own)}
        self.bos_id: int | None = backend.bos_token_id
        self.vocab_size = len(vocab)
        self.has_template = backend.chat_template is not None
        self.byte_ids = frozenset(i for token, i in vocab.items() if BYTE_TOKEN.fullmatch(token))
        self._thinks = any(start in vocab and end in vocab for start, end in THINKING_MARKS)

    def encode(self, text: str, add_special_tokens: bool = True) -> list[int]:
        """Token ids of `text`; special tokens written out in it are recognised."""
        # verbose: whether it warns of more tokens than the model was made for, which whoever feeds them checks.
        ids = self._backend.encode(_encodable("text", text), add_special_tokens=add_special_tokens, verbose=False)
        return list(ids)

    def encode_prompt(self, text: str) -> list[int]:
        """Like `encode`; specials are added unless `text` begins with BOS (mlx-lm generate.py, stream_generate)."""
        bos = self._backend.bos_token
        return self.encode(text, add_special_tokens=bos is None or not text.startswith(bos))

    def decode(self, token_ids: Sequence[int]) -> str:
        """Text of the ids, special tokens included; ids that name no token are nothing."""
        return str(self._backend.decode(list(token_ids)))

    def apply_chat_template(
        self,
        messages: Sequence[Mapping[str, Any]],
        tools: Sequence[Mapping[str, Any]] | None = None,
        add_generation_prompt: bool = True,
        **kwargs: Any,
    ) -> list[int]:
        """Token ids of a conversation. `enable_thinking` is always handed to the template, as mlx-lm does; by default
        it says whether the vocabulary has thinking marks. A template that prints the date prints today's, unless
        `strftime_now` is given: a function from a format to text.

        Raises TemplateMissing, and InvalidValue for messages that the template refuses.
        """
        from jinja2 import TemplateError

        if not self.has_template:
            raise TemplateMissing(self._name)
        kwargs.setdefault("enable_thinking", self._thinks)
        try:
            text = self._backend.apply_chat_template(
                [dict(message) for message in messages],
                tools=None if tools is None else [dict(tool) for tool in tools],
                add_generation_prompt=add_generation_prompt,
                tokenize=False,
                **kwargs,
            )
        except (TemplateError, TypeError, ValueError, KeyError) as error:
            raise InvalidValue("messages", messages, f"what the chat template accepts ({error})") from error
        return self.encode(text, add_special_tokens=False)

    def id_to_token(self, token_id: int) -> str | None:
        """The vocabulary's own spelling of a token, or None."""
        token: str | None = self._backend.convert_ids_to_tokens(token_id)
        return token


def load_tokenizer(folder: Path) -> Tokenizer:
    """Raises ModelNotFound without a vocabulary, CorruptFile for a damaged one, UnsupportedConfig for one that needs
    the checkpoint's own code.
    """
    if not has_tokenizer(folder):
        raise ModelNotFound(f"{folder}: no tokenizer.json, tokenizer.model or tokenizer_config.json; use token ids")
    for name in ("tokenizer.json", "tokenizer_config.json"):
        if (folder / name).is_file():
            read_json(folder / name)
    eos = read_config(folder).get("eos_token_id")
    config_eos_ids = frozenset([eos] if isinstance(eos, int) else eos or ())
    # Its advice that PyTorch is not installed is of no use here; warnings proper still come.
    os.environ.setdefault("TRANSFORMERS_NO_ADVISORY_WARNINGS", "1")
    from transformers import AutoTokenizer

    try:
        backend = AutoTokenizer.from_pretrained(str(folder), trust_remote_code=False, local_files_only=True)
    except (ValueError, ImportError) as error:
        raise UnsupportedConfig(f"{folder}: tokenizer not usable: {_one_line(error)}") from error
    except (OSError, KeyError, TypeError) as error:
        raise CorruptFile(folder, f"tokenizer: {_one_line(error)}") from error
    except Exception as error:  # `tokenizers` raises a bare Exception for a damaged tokenizer.json
        if type(error) is not Exception:
            raise
        raise CorruptFile(folder / "tokenizer.json", _one_line(error)) from error
    return Tokenizer(backend, config_eos_ids, str(folder))


def _one_line(error: BaseException) -> str:
    return " ".join(str(error).split())[:300]


def _encodable(field: str, text: str) -> str:
    """Lone surrogates are no text; the tokenizer would fail on them without saying where."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as error:
        raise InvalidValue(field, text[error.start : error.end], "text without lone surrogates") from error
    return text
