"""Tokenizers: made from GGUF, compared with BPE written out here; prompts and templates by mlx-lm's rules."""

from __future__ import annotations

import json
import logging
import random
import shutil
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import pytest
import regex
from gguf_files import MERGES, SPECIAL, alphabet, vocabulary, write_gguf

from engine import convert_gguf, errors, load_tokenizer, resolve_model
from engine.artifacts.gguf_tokenizer import PRE_TOKENIZERS
from engine.artifacts.tokenizer import Tokenizer

GPT2 = regex.compile(r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+")
TEXTS = (
    "the and  the\n\n\tthe",
    "x=1234+56 the12",
    "中文 と 😀 naïve",
    "<|im_start|>user\nthe<|im_end|>\n",
    "<tool>the</tool> [PAD268]",
    "don't the's\r\n\u00a0 the ",
    "٣٤ ½²",
    "",
)


def by_hand(text: str) -> list[int]:
    """SmolLM's rules: special tokens, then single digits, then GPT-2's pattern, then merges by rank."""
    ids = {token: i for i, token in enumerate(vocabulary()[:-1])}
    rank = {tuple(merge.split(" ")): i for i, merge in enumerate(MERGES)}
    marks = [*SPECIAL, "<tool>"]
    out: list[int] = []
    for part in regex.split("(" + "|".join(map(regex.escape, marks)) + ")", text):
        if part in marks:
            out.append(ids[part])
            continue
        for piece in regex.split(r"(\p{N})", part):
            for word in GPT2.findall(piece):
                symbols = [alphabet()[b] for b in word.encode()]
                while True:
                    ranked = [(rank[p], i) for i, p in enumerate(pairwise(symbols)) if p in rank]
                    if not ranked:
                        break
                    at = min(ranked)[1]
                    symbols[at : at + 2] = [symbols[at] + symbols[at + 1]]
                out += [ids[s] for s in symbols]
    return out


def made(folder: Path, **options: object) -> Path:
    write_gguf(folder / "m.gguf", **options)  # type: ignore[arg-type]
    return convert_gguf(folder / "m.gguf", folder / "model")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return made(tmp_path_factory.mktemp("tokenizer"))


@pytest.fixture(scope="module")
def tokenizer(folder: Path) -> Tokenizer:
    return load_tokenizer(folder)


def test_encoding_is_bpe_by_hand(tokenizer: Tokenizer) -> None:
    rng = random.Random(0)
    pieces = ["the", " the", " and", "12", " ", "\n", "'s", "é", "中", "😀", *SPECIAL, "<tool>", "x", ".", "th"]
    texts = [*TEXTS, *("".join(rng.choices(pieces, k=rng.randint(1, 20))) for _ in range(300))]
    for text in texts:
        assert tokenizer.encode(text) == by_hand(text), text
        assert tokenizer.decode(tokenizer.encode(text)) == text


def test_facts_of_the_vocabulary(tokenizer: Tokenizer) -> None:
    assert (tokenizer.eos_ids, tokenizer.bos_id, tokenizer.vocab_size) == (frozenset({2}), 1, len(vocabulary()) - 1)
    assert tokenizer.id_to_token(2) == "<|im_end|>"
    assert tokenizer.id_to_token(10**6) is None
    assert tokenizer.byte_ids == frozenset()
    assert tokenizer.decode([2, 10**6]) == "<|im_end|>"


def test_a_text_longer_than_the_model_is_encoded_without_advice(
    folder: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who feeds ids checks how many there are. Fails if transformers warns of errors that do not come."""
    copy = shutil.copytree(folder, tmp_path / "copy")
    config = json.loads((copy / "tokenizer_config.json").read_text())
    (copy / "tokenizer_config.json").write_text(json.dumps(config | {"model_max_length": 4}))
    monkeypatch.setattr(logging.getLogger("transformers"), "propagate", True)
    assert len(load_tokenizer(copy).encode("the and the and the and")) > 4
    assert not caplog.records


def test_config_eos_joins_the_tokenizers(folder: Path, tmp_path: Path) -> None:
    copy = shutil.copytree(folder, tmp_path / "copy")
    (copy / "generation_config.json").write_text('{"eos_token_id": [0, 7]}')
    assert load_tokenizer(copy).eos_ids == {0, 2, 7}


@pytest.mark.parametrize("pre", PRE_TOKENIZERS)
def test_every_named_pre_tokenizer_loads_and_round_trips(pre: str, tmp_path: Path) -> None:
    tokenizer = load_tokenizer(made(tmp_path, pre=pre))
    for text in TEXTS:
        assert tokenizer.decode(tokenizer.encode(text)) == text
    one_by_one = pre in ("smollm", "starcoder", "refact", "qwen2")
    assert (tokenizer.encode("12") == by_hand("12")) == one_by_one


def test_bos_is_added_once(tmp_path: Path) -> None:
    tokenizer = load_tokenizer(made(tmp_path, pre="llama-bpe", add_bos=True))
    plain = tokenizer.encode("the", add_special_tokens=False)
    assert tokenizer.encode("the") == [1, *plain]
    assert tokenizer.encode_prompt("the") == [1, *plain]
    assert tokenizer.encode_prompt("<|im_start|>the") == [1, *plain]
    assert tokenizer.encode("<|im_start|>the") == [1, 1, *plain]
    chat = tokenizer.apply_chat_template([{"role": "user", "content": "the"}])
    assert chat.count(1) == 2


def test_messages_become_tokens(tokenizer: Tokenizer) -> None:
    messages = [{"role": "user", "content": "the 12"}]
    asked = "<|im_start|>user\nthe 12<|im_end|>\n"
    assert tokenizer.decode(tokenizer.apply_chat_template(messages)) == asked + "<|im_start|>assistant\n"
    assert tokenizer.decode(tokenizer.apply_chat_template(messages, add_generation_prompt=False)) == asked


def test_template_gets_tools_and_arguments(folder: Path, tmp_path: Path) -> None:
    copy = shutil.copytree(folder, tmp_path / "copy")
    template = "{{ tools | length if tools else 'none' }} {{ enable_thinking }} {{ mood }}{{ messages[0]['content'] }}"
    (copy / "chat_template.jinja").write_text(template)
    tokenizer, ask = load_tokenizer(copy), [{"role": "user", "content": "x"}]
    tool = {"type": "function", "function": {"name": "f", "description": "", "parameters": {}}}
    assert tokenizer.decode(tokenizer.apply_chat_template(ask, mood="ok")) == "none False okx"
    assert tokenizer.decode(tokenizer.apply_chat_template(ask, tools=[tool], enable_thinking=True)) == "1 True x"
    (copy / "chat_template.jinja").write_text("{{ raise_exception('roles must alternate') }}")
    with pytest.raises(errors.InvalidValue, match="roles must alternate"):
        load_tokenizer(copy).apply_chat_template(ask)


def test_no_template_is_its_own_error(tmp_path: Path) -> None:
    tokenizer = load_tokenizer(made(tmp_path, template=None))
    assert not tokenizer.has_template
    with pytest.raises(errors.TemplateMissing):
        tokenizer.apply_chat_template([{"role": "user", "content": "x"}])


def test_lone_surrogates_are_no_text(tokenizer: Tokenizer) -> None:
    with pytest.raises(errors.InvalidValue, match="surrogates"):
        tokenizer.encode("a\ud800b")


def test_missing_and_damaged_tokenizers_are_typed(folder: Path, tmp_path: Path) -> None:
    copy = shutil.copytree(folder, tmp_path / "copy")
    whole = (copy / "tokenizer.json").read_text()
    (copy / "tokenizer.json").write_text(whole[: len(whole) // 2])
    with pytest.raises(errors.CorruptFile, match=r"tokenizer\.json"):
        load_tokenizer(copy)
    document = json.loads(whole)
    document["model"]["merges"] = [["no", "such"]]
    (copy / "tokenizer.json").write_text(json.dumps(document))
    with pytest.raises(errors.CorruptFile, match="tokenizer"):
        load_tokenizer(copy)
    for name in ("tokenizer.json", "tokenizer_config.json"):
        (copy / name).unlink()
    with pytest.raises(errors.ModelNotFound, match="token ids"):
        load_tokenizer(copy)


def test_code_of_the_checkpoint_is_not_run(folder: Path, tmp_path: Path) -> None:
    copy = shutil.copytree(folder, tmp_path / "copy")
    config = json.loads((copy / "tokenizer_config.json").read_text())
    config["tokenizer_class"] = "Own"
    config["auto_map"] = {"AutoTokenizer": ["own.Own", "own.Own"]}
    (copy / "tokenizer_config.json").write_text(json.dumps(config))
    (copy / "own.py").write_text("raise SystemExit('ran')")
    with pytest.raises(errors.UnsupportedConfig):
        load_tokenizer(copy)


# -- the built-in model ----------------------------------------------------------------------------------------------

# By hand from the GGUF's merges with SmolLM2's rules, and equal to ours on 1,519 varied texts.
SMOLLM2_IDS = [104, 45, 33, 34, 35, 36, 37, 1326, 982, 8866, 10907, 17097, 241, 115, 40993]

PEER = """
import json, sys
from mlx_lm.utils import load
_, tokenizer = load(sys.argv[1], lazy=True)
ask = [{"role": "user", "content": "What is 12 + 30?"}]
print(json.dumps([tokenizer.encode(t) for t in json.loads(sys.argv[2])]))
print(json.dumps(tokenizer.apply_chat_template(ask, add_generation_prompt=True)))
print(sorted(tokenizer.eos_token_ids))
"""


@pytest.mark.model
def test_smollm2_as_frozen_and_as_mlx_lm_reads_it() -> None:
    folder = resolve_model("smollm2-135m-instruct")
    tokenizer = load_tokenizer(folder)
    assert tokenizer.encode("x=12345 don't\n\n  ok 日本") == SMOLLM2_IDS
    texts = list(TEXTS)
    command = [sys.executable, "-c", PEER, str(folder), json.dumps(texts)]
    peer = subprocess.run(command, check=True, capture_output=True, text=True, timeout=200).stdout.splitlines()
    assert json.loads(peer[0]) == [tokenizer.encode_prompt(text) for text in texts]
    chat = tokenizer.apply_chat_template([{"role": "user", "content": "What is 12 + 30?"}])
    assert json.loads(peer[1]) == chat
    assert tokenizer.decode(chat).startswith("<|im_start|>system\nYou are a helpful AI assistant named SmolLM")
    assert json.loads(peer[2]) == sorted(tokenizer.eos_ids)
