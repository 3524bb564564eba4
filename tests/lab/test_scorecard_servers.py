"""A foreign server as a recipe, against small servers that behave and misbehave."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from scorecard_fakes import PROFILE, SEQUENCES, FakeWorker, quiet

from engine import errors
from lab.recipes import Pool, RecipeSpec, take_samples, turned, warm_up
from lab.scorecard.servers import Server, ServerConfig
from lab.stages import require_live
from oracles.contract import OracleRefused, Probe, StackConfig, TimeProbe

ASKED = TimeProbe(token_ids=tuple(range(8)), max_tokens=5)


@contextmanager
def server(status: int = 200, models: bool = True, pause_s: float = 0.01, **usage: object) -> Iterator[str]:
    """A server of completions: five pieces of text, then `usage` over what is usual."""

    class Handler(BaseHTTPRequestHandler):
        def log_message(self, *_: object) -> None:
            pass

        def do_GET(self) -> None:
            self.answer(json.dumps({"data": [{"id": "tiny"}] if models else []}).encode())

        def do_POST(self) -> None:
            asked = json.loads(self.rfile.read(int(self.headers["content-length"])))
            if status != 200:
                self.answer(b"no such model", status)
                return
            self.send_response(200)
            self.end_headers()
            for _ in range(asked["max_tokens"]):
                time.sleep(pause_s)
                self.piece({"choices": [{"text": "x"}]})
            counts = {"prompt_tokens": len(asked["prompt"].split()), "completion_tokens": asked["max_tokens"]}
            self.piece({"choices": [], "usage": counts | usage if usage.get("any", 1) else None})
            self.wfile.write(b"data: [DONE]\n\n")

        def piece(self, event: dict[str, object]) -> None:
            self.wfile.write(f"data: {json.dumps(event)}\n\n".encode())
            self.wfile.flush()

        def answer(self, body: bytes, code: int = 200) -> None:
            self.send_response(code)
            self.end_headers()
            self.wfile.write(body)

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as running:
        thread = threading.Thread(target=running.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{running.server_address[1]}/v1"
        running.shutdown()


def words(ids: object) -> str:
    return " ".join(str(token) for token in ids)  # type: ignore[attr-defined]


def ask(url: str, probe: Probe | TimeProbe = ASKED) -> dict[str, object]:
    asked = Server(ServerConfig.of(url), words)
    try:
        return dict(asked.probe(probe).doc)
    finally:
        asked.close()


def test_tokens_are_timed_from_outside() -> None:
    """Planted breaks: the first token's wait counted as decoding, or the tokens as one too many."""
    with server(pause_s=0.03) as url:
        doc = ask(url)
    assert doc["decode_tokens"] == 4
    assert doc["prompt_tokens"] == 8
    assert 0.02 < float(str(doc["ttft_s"])) < 1
    assert 0.08 < float(str(doc["decode_s"])) < 2
    assert doc["kv_status"] == "server, tiny"
    assert doc["peak_bytes"] is None


@pytest.mark.parametrize(
    ("behaves", "says"),
    [
        ({"completion_tokens": 3}, "made 3 of 5 tokens"),
        ({"prompt_tokens": 12}, "another tokenizer"),
        ({"prompt_tokens": 7}, "another tokenizer"),
        ({"prompt_tokens_details": {"cached_tokens": 4}}, "4 of 8 tokens of the prompt from a cache"),
        ({"any": 0}, "tells no usage"),
        ({"status": 404}, "404 no such model"),
        ({"models": False}, "lists no model"),
    ],
)
def test_a_sample_that_does_not_count_is_refused_in_words(behaves: dict[str, object], says: str) -> None:
    with server(**behaves) as url, pytest.raises(OracleRefused, match=says):  # type: ignore[arg-type]
        ask(url)


def test_a_beginning_of_text_token_is_let_pass_and_logits_are_not_there() -> None:
    with server(prompt_tokens=9) as url:
        assert ask(url)["prompt_tokens"] == 9
        with pytest.raises(OracleRefused, match="no logits"):
            ask(url, Probe(token_ids=(1, 2), tail=1))
    with pytest.raises(OracleRefused, match="ConnectError"):
        ask(url)


def test_a_template_with_which_prompts_begin_is_no_kept_prompt() -> None:
    """mlx-lm's server finds the six tokens with which two chats begin; planted break: it was refused for them."""
    asked = TimeProbe(token_ids=tuple(range(24)), max_tokens=5)
    with server(prompt_tokens_details={"cached_tokens": 6}) as url:
        assert ask(url, asked)["prompt_tokens"] == 18
    with server(prompt_tokens_details={"cached_tokens": 7}) as url, pytest.raises(OracleRefused, match="7 of 24"):
        ask(url, asked)


def test_a_warm_up_begins_otherwise_in_each_round() -> None:
    """Planted break: a server that lives on took the second warm-up from its cache, and was refused for it."""
    assert [turned([5, 6, 7], round_) for round_ in range(4)] == [[5, 6, 7], [6, 7, 5], [7, 5, 6], [5, 6, 7]]


def test_addresses() -> None:
    named = ServerConfig.of("http://127.0.0.1:8080/v1#my/model")
    assert (named.url, named.model) == ("http://127.0.0.1:8080/v1", "my/model")
    assert named.spec == RecipeSpec("openai:http://127.0.0.1:8080/v1", "my/model")
    assert ServerConfig.of("https://host/v1/").spec.name == "openai:https://host/v1 server"
    for bad in ("localhost:8080", "http://", "ftp://host/v1"):
        with pytest.raises(errors.InvalidValue, match="--server"):
            ServerConfig.of(bad)


def test_a_server_takes_its_turn_beside_the_processes() -> None:
    """One pool holds both; a server's samples have no bytes."""
    with server(pause_s=0.001) as url:
        mine = ServerConfig.of(url)
        configs: dict[str, StackConfig | ServerConfig] = {
            "mlx-lm native": StackConfig(stack="mlx-lm", model="m"),
            mine.spec.name: mine,
        }

        def start(config: StackConfig | ServerConfig) -> FakeWorker | Server:
            return Server(config, words) if isinstance(config, ServerConfig) else FakeWorker(config, [])

        with Pool(configs, start, resident=True) as pool:
            warm_up(pool, pool.live, SEQUENCES[-1], require_live, quiet)
            samples = take_samples(pool, SEQUENCES, PROFILE, require_live, quiet, 3)
    assert not pool.refused
    own = [sample for sample in samples if sample.recipe == mine.spec.name]
    assert len(own) == PROFILE.rounds
    assert all(sample.peak_bytes is None and sample.decode_tok_s > 0 for sample in own)
