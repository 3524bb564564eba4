"""`mlx_lm.evaluate` as a backend: the model class behind mlx-lm's own evaluation command, asked for texts.

It cuts texts into tokens itself, and those that it used are kept. A chat's messages are refused: the command leaves the
template to lm-eval, which is not here.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from engine import errors, load_tokenizer, resolve_model
from evals.backend_mlx_lm import identity
from evals.backends import Local, length_limit
from evals.encoding import as_text
from evals.run import Asked
from evals.task import Answer, Choices, Generation, Likelihood, Question
from oracles.client import Worker
from oracles.contract import StackConfig

CHAT = "mlx_lm.evaluate takes texts here, no messages"


class EvaluateBackend:
    """One question after the other, in the checkpoint's dtype. Errors: `InvalidValue` for another kv and dtype."""

    def __init__(self, model: str, *, blas: str, kv: str = "native", dtype: str = "auto") -> None:
        if (kv, dtype) != ("native", "auto"):
            raise errors.InvalidValue("--kv/--dtype", f"{kv} {dtype}", "native and auto: mlx_lm.evaluate has no others")
        self._folder = Path(resolve_model(model))
        config = json.loads((self._folder / "config.json").read_text(encoding="utf-8"))
        self._tokenizer = load_tokenizer(self._folder)
        self._local = Local(self._tokenizer, length_limit(config))
        self._worker = Worker(StackConfig(stack="mlx-lm", model="", blas=blas))
        self.template_sha256 = self._local.template_sha256
        self.document: Mapping[str, Any] = {"stack": "mlx-lm-evaluate", **identity(self._folder), "blas": blas}

    def ask(self, questions: Sequence[Question]) -> list[Asked]:
        return [self._ask(question) for question in questions]

    def _ask(self, question: Question) -> Asked:
        prompt = as_text(question)
        if isinstance(question, Generation) and not isinstance(question.prompt, str):
            return Asked(prompt=prompt, refused=CHAT)
        ids, each, refused = self._local.put(question)
        if refused:
            return Asked(prompt=prompt, prompt_ids=(*ids, *(t for part in each for t in part)), refused=refused)
        return self._likelihoods(prompt, question) if isinstance(question, Choices) else self._text(prompt, question)

    def _likelihoods(self, prompt: str, question: Choices) -> Asked:
        pairs = [(question.context, each) for each in question.continuations]
        doc = self._worker.evaluate(self._folder, pairs=pairs)
        context = doc["ids"][0][0]
        behind = [whole[len(context) :] for _, whole in doc["ids"]]
        found = [
            Likelihood(nats=nats, tokens=len(ids), greedy=greedy)
            for (nats, greedy), ids in zip(doc["scores"], behind, strict=True)
        ]
        ids = (*context, *(token for each in behind for token in each))
        answer = Answer(likelihoods=tuple(found), prompt_tokens=len(context))
        return Asked(prompt=prompt, prompt_ids=ids, answer=answer)

    def _text(self, prompt: str, question: Generation) -> Asked:
        """It gives a text alone: tokens are counted by encoding that once more."""
        asked = (str(question.prompt), question.max_tokens, list(question.stop))
        doc = self._worker.evaluate(self._folder, prompts=[asked])
        text, ids = doc["texts"][0], tuple(doc["prompt_ids"][0])
        tokens = len(self._tokenizer.encode_prompt(text))
        ended = "length" if tokens >= question.max_tokens else "stop"
        answer = Answer(text=text, finish_reason=ended, prompt_tokens=len(ids), tokens=tokens)
        return Asked(prompt=prompt, prompt_ids=ids, answer=answer)

    def close(self) -> None:
        self._worker.close()
