"""mlx-lm as a backend: its own model and loop in a process of its own, asked for the same token ids as the engine."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np

from engine import load_tokenizer, resolve_model
from evals.backends import Local, length_limit, text_files
from evals.encoding import as_text
from evals.run import Asked
from evals.task import Answer, Generation, Likelihood, Question
from oracles.client import Worker
from oracles.contract import GenerateProbe, Probe, StackConfig
from oracles.record import model_sha256


def identity(folder: Path) -> dict[str, Any]:
    """What an answer of mlx-lm depends on, apart from how it is run."""
    versions = {name: metadata.version(name) for name in ("mlx", "mlx-lm")}
    return {"model_sha256": model_sha256(folder), "files": text_files(folder), **versions}


class MlxLmBackend:
    """One question after the other. `options`: kv, dtype and chunk of `StackConfig`."""

    def __init__(self, model: str, *, blas: str, **options: Any) -> None:
        folder = Path(resolve_model(model))
        config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
        self._tokenizer = load_tokenizer(folder)
        self._local = Local(self._tokenizer, length_limit(config))
        self._config = StackConfig(stack="mlx-lm", model=str(folder), blas=blas, **options)
        self._worker = Worker(self._config)
        self.template_sha256 = self._local.template_sha256
        how = {name: getattr(self._config, name) for name in ("dtype", "kv", "chunk", "blas")}
        self.document: Mapping[str, Any] = {"stack": "mlx-lm", **identity(folder), **how}

    def ask(self, questions: Sequence[Question]) -> list[Asked]:
        return [self._ask(question) for question in questions]

    def _ask(self, question: Question) -> Asked:
        ids, each, refused = self._local.put(question)
        answer = None
        if refused:
            pass
        elif isinstance(question, Generation):
            answer = self._generate(question, ids)
        else:
            answer = Answer(likelihoods=tuple(self._likelihood(ids, part) for part in each), prompt_tokens=len(ids))
        flat = (*ids, *(token for part in each for token in part))
        return Asked(prompt=as_text(question), prompt_ids=flat, answer=answer, refused=refused)

    def _generate(self, question: Generation, ids: tuple[int, ...]) -> Answer:
        """mlx-lm's loop knows no stop strings: its text is cut at the first."""
        doc = self._worker.probe(GenerateProbe(token_ids=ids, sampling={"max_tokens": question.max_tokens})).doc
        tokens, ended = list(doc["tokens"]), doc["finish_reason"]
        text = self._tokenizer.decode(tokens[:-1] if ended == "stop" else tokens)
        cuts = [at for stop in question.stop if (at := text.find(stop)) >= 0]
        return Answer(
            text=text[: min(cuts)] if cuts else text,
            finish_reason="stop" if cuts else ended,
            prompt_tokens=len(ids),
            tokens=len(tokens),
        )

    def _likelihood(self, context: tuple[int, ...], ids: tuple[int, ...]) -> Likelihood:
        fed = (*context, *ids[:-1], *(0,) * (len(ids) == 1))  # as the engine: no forward of one token behind a context
        whole, rest = divmod(len(context) - 1, self._config.chunk)
        sizes = (*(self._config.chunk,) * whole, *(rest,) * (rest > 0), len(fed) - len(context) + 1)
        logits = np.array(self._worker.probe(Probe(token_ids=fed, sizes=sizes)).tensors["logits"])
        rows = logits[len(context) - 1 : len(context) - 1 + len(ids)].astype(np.float64)
        logprobs = rows - np.logaddexp.reduce(rows, axis=1, keepdims=True)
        nats = float(logprobs[range(len(ids)), ids].sum())
        return Likelihood(nats=nats, tokens=len(ids), greedy=tuple(rows.argmax(axis=1)) == ids)

    def close(self) -> None:
        self._worker.close()
