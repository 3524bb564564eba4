"""A server that speaks OpenAI's protocol as one more recipe: timed from outside, on the prompts of the others.

Only speed is known of it: what it keeps in memory, its weights and its logits are not, and so it has no place on the
frontier. A sample counts only if the server made as many tokens as were asked and took at most `MOST_CACHED` of the
prompt from a cache; the speed of prefill is then that of the tokens which it computed.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import urldefrag

import httpx

from engine import errors
from lab.recipes import RecipeSpec
from oracles.contract import OracleRefused, Probe, TimeProbe, Trace

KV = "server"
TIMEOUT_S = 600.0
MOST_ADDED = 1  # a beginning-of-text token, which many servers put before a prompt
MOST_CACHED = 0.25  # of a prompt's tokens: that chats begin with the same template is no kept prompt

Decode = Callable[[Sequence[int]], str]


@dataclass(frozen=True)
class ServerConfig:
    """url: up to and including /v1; model: as the server calls it, "" for the first that it lists."""

    url: str
    model: str = ""
    kv: str = KV

    @classmethod
    def of(cls, text: str) -> ServerConfig:
        """From `http://HOST:PORT/v1` or `http://HOST:PORT/v1#MODEL`. Raises `InvalidValue`."""
        url, model = urldefrag(text)
        if not url.startswith(("http://", "https://")) or len(url.split("//", 1)[1]) == 0:
            raise errors.InvalidValue("--server", text, "http://HOST:PORT/v1 or http://HOST:PORT/v1#MODEL, or https")
        return cls(url.rstrip("/"), model)

    @property
    def spec(self) -> RecipeSpec:
        return RecipeSpec(f"openai:{self.url}", self.model or KV)


class Server:
    """One server. Nothing is started and nothing is stopped: it runs already. Errors: `OracleRefused`."""

    def __init__(self, config: ServerConfig, decode: Decode, transport: httpx.BaseTransport | None = None) -> None:
        self.config, self._decode = config, decode
        self._client = httpx.Client(base_url=f"{config.url}/", timeout=TIMEOUT_S, transport=transport)
        self._model = config.model

    def close(self) -> None:
        self._client.close()

    def probe(self, probe: Probe | TimeProbe) -> Trace:
        """Stream one completion and time it."""
        if not isinstance(probe, TimeProbe):
            raise OracleRefused(f"{self.config.url}: a server gives no logits")
        body = {
            "model": self._model or self._first_model(),
            "prompt": self._decode(probe.token_ids),
            "max_tokens": probe.max_tokens,
            "temperature": 0,
            "ignore_eos": True,
            "stream": True,
            "stream_options": {"include_usage": True},
        }
        begin = time.perf_counter()
        first = last = 0.0
        usage: dict[str, Any] = {}
        for event in self._events(body):
            now = time.perf_counter()
            if any(choice.get("text") for choice in event.get("choices") or ()):
                first, last = first or now, now
            usage = event.get("usage") or usage
        return self._trace(probe, usage, first - begin if first else 0.0, last - first)

    def _first_model(self) -> str:
        listed = self._json(self._request("GET", "models", None)).get("data") or []
        if not listed:
            raise OracleRefused(f"{self.config.url}: it lists no model; name one: {self.config.url}#MODEL")
        self._model = str(listed[0]["id"])
        return self._model

    def _request(self, method: str, path: str, body: dict[str, Any] | None) -> httpx.Response:
        try:
            found = self._client.request(method, path, json=body)
        except httpx.HTTPError as error:
            raise OracleRefused(f"{self.config.url}: {type(error).__name__}: {error}") from error
        if found.status_code != 200:
            raise OracleRefused(f"{self.config.url}: {found.status_code} {' '.join(found.text.split())[:200]}")
        return found

    def _json(self, response: httpx.Response) -> dict[str, Any]:
        try:
            found = response.json()
        except ValueError as error:
            raise OracleRefused(f"{self.config.url}: its answer is no JSON: {error}") from error
        return found if isinstance(found, dict) else {}

    def _events(self, body: dict[str, Any]) -> Iterator[dict[str, Any]]:
        try:
            with self._client.stream("POST", "completions", json=body) as response:
                if response.status_code != 200:
                    text = " ".join(response.read().decode(errors="replace").split())
                    raise OracleRefused(f"{self.config.url}: {response.status_code} {text[:200]}")
                for line in response.iter_lines():
                    data = line.removeprefix("data:").strip()
                    if line.startswith("data:") and data != "[DONE]":
                        yield json.loads(data)
        except (httpx.HTTPError, ValueError) as error:
            raise OracleRefused(f"{self.config.url}: {type(error).__name__}: {error}") from error

    def _trace(self, probe: TimeProbe, usage: dict[str, Any], ttft_s: float, decode_s: float) -> Trace:
        made, prompt = int(usage.get("completion_tokens") or 0), int(usage.get("prompt_tokens") or 0)
        cached = int((usage.get("prompt_tokens_details") or {}).get("cached_tokens") or 0)
        asked = len(probe.token_ids)
        if not usage:
            why = "it tells no usage, so that its tokens cannot be counted"
        elif made != probe.max_tokens:
            ended = ": it ended its text, though asked to `ignore_eos`" if made < probe.max_tokens else ""
            why = f"it made {made} of {probe.max_tokens} tokens{ended}"
        elif not 0 <= prompt - asked <= MOST_ADDED:
            why = f"it counts {prompt} tokens in a prompt of {asked}: another tokenizer"
        elif cached > MOST_CACHED * asked:
            why = f"it took {cached} of {asked} tokens of the prompt from a cache"
        elif ttft_s <= 0 or decode_s <= 0:
            why = "its text came in one piece, so that no token is timed"
        else:
            return Trace(tensors={}, doc=self._document(prompt - cached, made, ttft_s, decode_s))
        raise OracleRefused(f"{self.config.url}: {why}")

    def _document(self, prompt: int, made: int, ttft_s: float, decode_s: float) -> dict[str, Any]:
        return {
            "stack": self.config.spec.stack,
            "kv_status": f"server, {self._model}",
            "caches": [],
            "prompt_tokens": prompt,
            "decode_tokens": made - 1,
            "prefill_s": ttft_s,
            "ttft_s": ttft_s,
            "decode_s": decode_s,
            "peak_bytes": None,
            "rss_bytes": None,
            "kv_bytes": None,
        }
