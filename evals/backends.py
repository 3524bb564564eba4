"""Who answers the questions of a task: the engine, a stack of the oracles, or any server that speaks OpenAI's protocol.

Name -> what it is: "engine", "mlx-lm", "mlx-lm-evaluate", "openai:URL". All get the same questions; the first two the
same token ids.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from engine import Engine, Likelihood, Request, SamplingParams, errors, load, parse_kv, resolve_model
from evals.encoding import Encoder, as_text, choice_ids, prompt_ids, template_sample
from evals.run import Asked, digest
from evals.task import Answer, Choices, Generation, Question
from evals.task import Likelihood as Scored

# Beside the weights, what of a model's folder an answer may depend on.
TEXT_FILES = (
    *("config.json", "generation_config.json", "tokenizer.json", "tokenizer_config.json", "special_tokens_map.json"),
    *("added_tokens.json", "tokenizer.model", "vocab.json", "merges.txt", "chat_template.jinja", "chat_template.json"),
)


def text_files(folder: Path) -> dict[str, str]:
    """Name -> sha256 of those that are there."""
    found = {name: folder / name for name in TEXT_FILES if (folder / name).is_file()}
    return {name: hashlib.sha256(path.read_bytes()).hexdigest() for name, path in found.items()}


def plan_file(kv: str) -> dict[str, str]:
    """The sha256 of a KV plan per layer, which may change under its name; {} for a request without a file."""
    path = parse_kv(kv).path
    return {} if path is None else {"kv_plan": hashlib.sha256(Path(path).read_bytes()).hexdigest()}


def sampling_of(question: Generation) -> SamplingParams:
    """Greedy, at a pinned length."""
    return SamplingParams(max_tokens=question.max_tokens, stop=question.stop)


def length_limit(config: Mapping[str, Any]) -> int | None:
    """Tokens that a model was made for; None where its config does not say."""
    found = config.get("text_config", config).get("max_position_embeddings")
    return found if isinstance(found, int) else None


def too_long(tokens: int, limit: int | None) -> str:
    """Why a question of so many tokens, its answer included, cannot be put; "" where it can."""
    return "" if limit is None or tokens <= limit else f"{tokens} tokens, the model's context has {limit}"


class Local:
    """What the two backends that tokenize here share: questions to ids, and which of them can be put."""

    def __init__(self, encoder: Encoder, limit: int | None) -> None:
        self.encoder, self.limit = encoder, limit
        self.template_sha256 = digest(template_sample(encoder)) if encoder.has_template else ""

    def put(self, question: Question) -> tuple[tuple[int, ...], list[tuple[int, ...]], str]:
        """Prompt ids, those of continuations, and why the question cannot be put, or ""."""
        if isinstance(question, Choices):
            context, each = choice_ids(question, self.encoder)
            asked = [tuple(ids) for ids in each]
            refused = too_long(len(context) + max(map(len, asked)), self.limit)
            if not context or not all(asked):
                refused = "a context or continuation has no tokens"
            return tuple(context), asked, refused
        try:
            ids = prompt_ids(question, self.encoder)
        except (errors.TemplateMissing, errors.InvalidValue) as error:
            return (), [], str(error)
        return tuple(ids), [], too_long(len(ids) + question.max_tokens, self.limit)


class EngineBackend:
    """The engine of this process. `options`: of `engine.load`; batch: rows that run at once, and continuations that
    share a forward."""

    def __init__(self, model: str, *, batch: int, **options: Any) -> None:
        self._engine: Engine = load(model, batch=batch, **options)
        self._batch = batch
        if self._engine.tokenizer is None:
            self._engine.close()
            raise errors.InvalidValue("--model", model, "a folder with a tokenizer: tasks are text")
        self._local = Local(self._engine.tokenizer, length_limit(self._engine.model_config))
        config = self._engine.config
        names = (
            *("dtype", "kv", "prefill_chunk", "recurrence", "fuse", "compile", "argmax", "ops", "batch_mode", "batch"),
            "profile",
        )
        self.document: Mapping[str, Any] = {
            "stack": "engine",
            "model_sha256": self._engine.model_sha256,
            "files": text_files(Path(resolve_model(model))),
            "machine": self._engine.machine.key,
            "mlx": self._engine.machine.mlx,
            **{name: getattr(config, name) for name in names},
            **plan_file(config.kv),
            # Runs without one keep the name that they had before there was any.
            **({"prefix_cache": config.prefix_cache} if config.prefix_cache else {}),
        }
        self.template_sha256 = self._local.template_sha256

    def ask(self, questions: Sequence[Question]) -> list[Asked]:
        puts = [self._local.put(question) for question in questions]
        handles: dict[int, Any] = {}
        for i, (question, (ids, _, refused)) in enumerate(zip(questions, puts, strict=True)):
            if isinstance(question, Generation) and not refused:
                request = Request(prompt=ids, sampling=sampling_of(question), delivery="collect")
                handles[i] = self._engine.submit(request)
        found = []
        for i, (question, (ids, each, refused)) in enumerate(zip(questions, puts, strict=True)):
            answer = None
            if i in handles:
                done = handles[i].result()
                answer = Answer(
                    text=done.text,
                    finish_reason=done.finish_reason,
                    prompt_tokens=len(ids),
                    tokens=len(done.tokens),
                )
            elif not refused:
                answer = _answer(self._engine.likelihoods(ids, each, batch=self._batch), len(ids))
            flat = (*ids, *(token for part in each for token in part))
            found.append(Asked(prompt=as_text(question), prompt_ids=flat, answer=answer, refused=refused))
        return found

    def close(self) -> None:
        self._engine.close()


def _answer(scored: Sequence[Likelihood], prompt_tokens: int) -> Answer:
    likelihoods = tuple(Scored(nats=one.nats, tokens=len(one.logprobs), greedy=one.greedy) for one in scored)
    return Answer(likelihoods=likelihoods, prompt_tokens=prompt_tokens)
