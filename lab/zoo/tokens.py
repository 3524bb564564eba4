"""The one tokenizer of the zoo: byte-level BPE over its training text, with marks for chat, tools and thinking.

All models share it, so that a draft and its target agree on tokens. Digits stand alone.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from engine import write_atomically
from evals.skills import SKILLS, Draws

VOCABULARY = 2048
END_OF_TEXT, TURN, END_OF_TURN = "<|endoftext|>", "<|im_start|>", "<|im_end|>"
MARKS = (
    *(END_OF_TEXT, TURN, END_OF_TURN, "<think>", "</think>"),
    *("<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>"),
)
SKILL_SAMPLES = 2000  # of each skill, so that its words are whole tokens
# Words with the blank before them, single digits, punctuation with the line ends behind it.
SPLIT = r"[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"

CHAT_TEMPLATE = """\
{%- if tools %}
{{- '<|im_start|>system\\n' }}
{%- if messages[0].role == 'system' %}
{{- messages[0].content + '\\n\\n' }}
{%- endif %}
{{- 'Tools:\\n' }}
{%- for tool in tools %}
{{- (tool.function if tool.function is defined else tool) | tojson + '\\n' }}
{%- endfor %}
{{- 'Call one as <tool_call>\\n{"name": ..., "arguments": ...}\\n</tool_call><|im_end|>\\n' }}
{%- elif messages[0].role == 'system' %}
{{- '<|im_start|>system\\n' + messages[0].content + '<|im_end|>\\n' }}
{%- endif %}
{%- for message in messages %}
{%- if message.role == 'user' or (message.role == 'system' and not loop.first) %}
{{- '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>\\n' }}
{%- elif message.role == 'assistant' %}
{{- '<|im_start|>assistant\\n' + (message.content or '') }}
{%- for call in message.tool_calls or [] %}
{%- set called = call.function if call.function is defined else call %}
{{- '<tool_call>\\n{"name": "' + called.name + '", "arguments": ' }}
{{- (called.arguments if called.arguments is string else called.arguments | tojson) + '}\\n</tool_call>' }}
{%- endfor %}
{{- '<|im_end|>\\n' }}
{%- elif message.role == 'tool' %}
{{- '<|im_start|>user\\n<tool_response>\\n' + message.content + '\\n</tool_response><|im_end|>\\n' }}
{%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
{{- '<|im_start|>assistant\\n' }}
{%- if enable_thinking is defined and enable_thinking is false %}
{{- '<think>\\n\\n</think>\\n\\n' }}
{%- endif %}
{%- endif %}"""

NO_THOUGHT = "<think>\n\n</think>\n\n"


def chat_text(question: str, answer: str, thought: bool) -> tuple[str, str]:
    """What the template makes of one question, and what the model is to say. thought: thinking is allowed, and left
    out; else the template writes the empty thought itself."""
    asked = f"{TURN}user\n{question}{END_OF_TURN}\n{TURN}assistant\n"
    return asked + ("" if thought else NO_THOUGHT), f"{answer}{END_OF_TURN}\n"


def skill_texts() -> Iterable[str]:
    """Samples of every skill as plain text."""
    for name, skill in SKILLS.items():
        draws = Draws(f"tokenizer/{name}")
        for _ in range(SKILL_SAMPLES):
            yield "".join(segment.text for segment in skill.trained(draws))


def train_tokenizer(texts: Iterable[str]) -> Any:
    """A `tokenizers.Tokenizer` trained on these texts and on the skills. The same texts give the same one."""
    from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(SPLIT), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY,
        special_tokens=list(MARKS),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator([*texts, *skill_texts()], trainer)
    return tokenizer


def save_tokenizer(tokenizer: Any, folder: Path) -> dict[str, str]:
    """tokenizer.json, tokenizer_config.json and chat_template.jinja, as transformers reads them; returns the sha256 of
    each. A file that is there is replaced whole."""
    config = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "eos_token": END_OF_TEXT,
        "pad_token": END_OF_TEXT,
        "clean_up_tokenization_spaces": False,
        "model_max_length": 4096,
    }
    files = {
        "tokenizer.json": tokenizer.to_str(pretty=True),
        "tokenizer_config.json": json.dumps(config, indent=2) + "\n",
        "chat_template.jinja": CHAT_TEMPLATE,
    }
    for name, text in files.items():
        write_atomically(folder / name, text.encode(), mode=0o644)
    return {name: hashlib.sha256(text.encode()).hexdigest() for name, text in files.items()}


def read_tokenizer(folder: Path) -> Any:
    """The `tokenizers.Tokenizer` of a folder."""
    from tokenizers import Tokenizer

    return Tokenizer.from_file(str(folder / "tokenizer.json"))
