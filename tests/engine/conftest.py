"""A tiny seeded llama with a character tokenizer and a chat template, shared by the engine's tests."""

from __future__ import annotations

import json
import shutil
import string
from collections.abc import Iterator
from pathlib import Path

import pytest

from engine import Engine, load
from oracles.tiny import tiny_model

# Ids 0 and 1 are <unk> and <eos>, as the tiny models' config says; every other id is one character.
CHARACTERS = (string.ascii_letters + string.digits + " .,:;!?'\"-+*/=()[]{}<>_#@\n")[:95]


def write_tokenizer(folder: Path) -> None:
    """A tokenizer of single characters, with a chat template, for a vocabulary of at least 97."""
    from tokenizers import Tokenizer, decoders, models

    vocab = {"<unk>": 0, "<eos>": 1, **{c: i + 2 for i, c in enumerate(CHARACTERS)}}
    tokenizer = Tokenizer(models.BPE(vocab=vocab, merges=[], unk_token="<unk>"))
    tokenizer.decoder = decoders.Fuse()
    tokenizer.add_special_tokens(["<unk>", "<eos>"])
    tokenizer.save(str(folder / "tokenizer.json"))
    template = "{% for m in messages %}{{ m['role'] }}: {{ m['content'] }}\n{% endfor %}"
    template += "{% if add_generation_prompt %}assistant: {% endif %}"
    config = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "eos_token": "<eos>",
        "unk_token": "<unk>",
        "chat_template": template,
        "clean_up_tokenization_spaces": False,
    }
    (folder / "tokenizer_config.json").write_text(json.dumps(config))


@pytest.fixture(scope="session")
def llama_folder() -> Path:
    """Without a tokenizer."""
    return tiny_model("llama")


@pytest.fixture(scope="session")
def text_folder(tmp_path_factory: pytest.TempPathFactory, llama_folder: Path) -> Path:
    """The same weights with a tokenizer and a chat template."""
    folder = tmp_path_factory.mktemp("text") / "tiny-llama-text"
    shutil.copytree(llama_folder, folder)
    write_tokenizer(folder)
    return folder


@pytest.fixture(scope="session")
def text_engine(text_folder: Path) -> Iterator[Engine]:
    with load(text_folder) as engine:
        yield engine
