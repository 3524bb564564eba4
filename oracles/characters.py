"""A tiny model that reads text: its ids are characters. `python -m oracles.characters llama` prints its folder.

The weights are random, so what comes of a text says something of the code and nothing of a scheme's quality.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import string
import sys
from pathlib import Path

from oracles.tiny import tiny_model, tiny_root, whole

CHARACTERS = (string.ascii_letters + string.digits + string.punctuation + " \n")[:95]
UNKNOWN, EOS = "<unk>", "<eos>"


def character_model(family: str, *, root: Path | None = None) -> Path:
    """The folder of a tiny model with a tokenizer: 0 is <unk>, 1 is <eos>, then one id for each of `CHARACTERS`.

    Raises as `tiny_model`.
    """
    from tokenizers import Tokenizer, decoders, models

    plain = tiny_model(family, root=root)
    folder = (
        root or tiny_root()
    ) / f"{plain.name}-characters-{hashlib.sha256(Path(__file__).read_bytes()).hexdigest()[:8]}"
    if folder.is_dir():
        return folder
    vocab = {UNKNOWN: 0, EOS: 1, **{c: i + 2 for i, c in enumerate(CHARACTERS)}}
    tokenizer = Tokenizer(models.BPE(vocab=vocab, merges=[], unk_token=UNKNOWN))
    tokenizer.decoder = decoders.Fuse()
    kinds = {"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": EOS, "unk_token": UNKNOWN}
    with whole(folder) as staging:
        shutil.copytree(plain, staging, dirs_exist_ok=True)
        tokenizer.save(str(staging / "tokenizer.json"))
        (staging / "tokenizer_config.json").write_text(json.dumps(kinds) + "\n", encoding="utf-8")
    return folder


if __name__ == "__main__":
    print(character_model(sys.argv[1]))
