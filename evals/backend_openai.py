"""Any server that speaks OpenAI's protocol as a backend: chat and text completions over HTTP.

Likelihoods need a server that echoes a prompt with its log-probabilities (`echo` and `logprobs` of /completions); where
it does not, those items are refused and the others run.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx

from engine import errors
from evals.encoding import as_text
from evals.run import Asked
from evals.task import Answer, Choices, Generation, Likelihood, Question

TIMEOUT_S = 600.0
KEY_ENV = "OPENAI_API_KEY"
NO_ECHO = "the server gives no log-probabilities of a prompt"


class ServerFailed(errors.FrontierError):
    """A server that cannot be reached, or that answers no question."""


class OpenAIBackend:
    """url: up to and including /v1; model: as the server calls it; batch: requests at once."""

    def __init__(self, url: str, model: str, *, batch: int, transport: httpx.BaseTransport | None = None) -> None:
        if not url.startswith(("http://", "https://")):
            raise errors.InvalidValue("--backend", f"openai:{url}", "openai:http://HOST:PORT/v1, or https")
        key = os.environ.get(KEY_ENV)
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        self._client = httpx.Client(
            base_url=url.rstrip("/") + "/", headers=headers, timeout=TIMEOUT_S, transport=transport
        )
        self._model, self._batch = model, batch
        self.template_sha256 = ""
        self.document: Mapping[str, Any] = {"stack": "openai", "url": url, "model": model, "batch": batch}

    def ask(self, questions: Sequence[Question]) -> list[Asked]:
        with ThreadPoolExecutor(self._batch) as pool:
            return list(pool.map(self._ask, questions))

    def _ask(self, question: Question) -> Asked:
        prompt = as_text(question)
        if isinstance(question, Choices):
            found = [self._likelihood(question.context, each) for each in question.continuations]
            scored = tuple(each for each in found if each is not None)
            if len(scored) != len(found):
                return Asked(prompt=prompt, refused=NO_ECHO)
            return Asked(prompt=prompt, answer=Answer(likelihoods=scored))
        answer = self._generate(question)
        return (
            Asked(prompt=prompt, answer=answer) if isinstance(answer, Answer) else Asked(prompt=prompt, refused=answer)
        )

    def _generate(self, question: Generation) -> Answer | str:
        body: dict[str, Any] = {"max_tokens": question.max_tokens, "temperature": 0}
        if question.stop:
            body["stop"] = list(question.stop)
        if isinstance(question.prompt, str):
            done = self._post("completions", body | {"prompt": question.prompt})
        else:
            tools = {} if question.tools is None else {"tools": list(question.tools)}
            done = self._post("chat/completions", body | tools | {"messages": list(question.prompt)})
        if isinstance(done, str):
            return done
        choice, usage = done["choices"][0], done.get("usage") or {}
        return Answer(
            text=choice["text"] if isinstance(question.prompt, str) else message_text(choice["message"]),
            finish_reason="length" if choice.get("finish_reason") == "length" else "stop",
            prompt_tokens=int(usage.get("prompt_tokens") or 0),
            tokens=int(usage.get("completion_tokens") or 0),
        )

    def _likelihood(self, context: str, continuation: str) -> Likelihood | None:
        """None where the server does not echo."""
        body = {"prompt": context + continuation, "max_tokens": 1, "temperature": 0, "echo": True, "logprobs": 1}
        done = self._post("completions", body)
        found = None if isinstance(done, str) else done["choices"][0].get("logprobs")
        offsets = found.get("text_offset") if isinstance(found, dict) else None
        if not offsets or not isinstance(found, dict) or offsets[0] != 0:
            return None
        begin, end = len(context.rstrip()), len(context + continuation)
        inside = [i for i, at in enumerate(offsets) if begin <= at < end]
        logprobs = [found["token_logprobs"][i] for i in inside]
        if not inside or None in logprobs:
            return None
        best = [max(found["top_logprobs"][i].values(), default=0.0) for i in inside]
        greedy = all(own >= top for own, top in zip(logprobs, best, strict=True))
        return Likelihood(nats=sum(logprobs), tokens=len(inside), greedy=greedy)

    def _post(self, path: str, body: Mapping[str, Any]) -> dict[str, Any] | str:
        """The answer, or what the server says against this question (a 4xx). Raises `ServerFailed` for the rest."""
        try:
            response = self._client.post(path, json={"model": self._model, **body})
            if 400 <= response.status_code < 500 and response.status_code not in (401, 403, 404, 429):
                return f"the server refuses: {response.text[:300]}"
            response.raise_for_status()
            done: dict[str, Any] = response.json()
        except (httpx.HTTPError, json.JSONDecodeError) as error:
            raise ServerFailed(f"{self._client.base_url}{path}: {error}; the run goes on from here") from error
        if not done.get("choices"):
            raise ServerFailed(f"{self._client.base_url}{path}: an answer without choices")
        return done

    def close(self) -> None:
        self._client.close()


def message_text(message: Mapping[str, Any]) -> str:
    """A message's text, its tool calls behind it as models write them."""
    calls = [call["function"] for call in message.get("tool_calls") or ()]
    written = [
        f'<tool_call>{{"name": {json.dumps(c["name"])}, "arguments": {c["arguments"]}}}</tool_call>' for c in calls
    ]
    return "\n".join([*filter(None, [message.get("content")]), *written])
