"""Backends: the engine and mlx-lm answer alike, a server is asked in its protocol, and nothing stops at a refusal."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from dataclasses import fields
from datetime import datetime, tzinfo
from pathlib import Path
from typing import Any

import httpx
import pytest

from engine import EngineConfig, errors, load_tokenizer
from evals.backend_mlx_lm import MlxLmBackend, identity
from evals.backend_openai import NO_ECHO, OpenAIBackend, ServerFailed, message_text
from evals.backends import EngineBackend, Local
from evals.corpus import ChatItem, encoded
from evals.encoding import choice_ids
from evals.task import Choices, Generation, Question
from oracles.characters import character_model

TEMPLATE = "{% for m in messages %}{{ m['role'] }}: {{ m['content'] }}\n{% endfor %}assistant: "
QUESTIONS: tuple[Question, ...] = (
    Choices(context="The sky is ", continuations=("blue", "green and wide", "x")),
    Generation(prompt="one two", max_tokens=12),
    Generation(prompt="a", max_tokens=1),
    Generation(prompt=({"role": "user", "content": "hi"},), max_tokens=5),
    Choices(context="2+2=", continuations=("4", "5")),
    Generation(prompt="x" * 5000, max_tokens=5),
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("backends") / "model"
    shutil.copytree(character_model("llama"), made)
    config = json.loads((made / "tokenizer_config.json").read_text())
    (made / "tokenizer_config.json").write_text(json.dumps(config | {"chat_template": TEMPLATE}))
    return made


@pytest.fixture(scope="module")
def engine_answers(folder: Path) -> Iterator[list[Any]]:
    backend = EngineBackend(str(folder), batch=8)
    yield backend.ask(QUESTIONS)
    backend.close()


def test_the_engine_answers_everything_it_can(engine_answers: list[Any]) -> None:
    assert [bool(each.answer) for each in engine_answers] == [True] * 5 + [False]
    assert "5005 tokens, the model's context has 4096" in engine_answers[5].refused
    assert [one.tokens for one in engine_answers[0].answer.likelihoods] == [5, 15, 2]  # the blank goes with them
    assert len(engine_answers[1].prompt_ids) == 7
    assert engine_answers[1].answer.tokens <= 12


@pytest.mark.parametrize("batch", [1, 4])
def test_answers_do_not_move_with_the_batch(folder: Path, engine_answers: list[Any], batch: int) -> None:
    backend = EngineBackend(str(folder), batch=batch)
    assert backend.ask(QUESTIONS) == engine_answers
    backend.close()


def test_mlx_lm_is_asked_for_the_same_ids_and_says_the_same(folder: Path, engine_answers: list[Any]) -> None:
    backend = MlxLmBackend(str(folder), blas="bundled")
    theirs = backend.ask(QUESTIONS)
    backend.close()
    for ours, other in zip(engine_answers, theirs, strict=True):
        assert (ours.prompt, ours.prompt_ids, ours.refused) == (other.prompt, other.prompt_ids, other.refused)
        if ours.answer is None:
            continue
        assert (ours.answer.text, ours.answer.finish_reason) == (other.answer.text, other.answer.finish_reason)
        for a, b in zip(ours.answer.likelihoods, other.answer.likelihoods, strict=True):
            assert (a.tokens, a.greedy) == (b.tokens, b.greedy)
            assert a.nats == pytest.approx(b.nats, abs=1e-5)


def test_a_model_without_a_template_refuses_chat_alone() -> None:
    backend = EngineBackend(str(character_model("llama")), batch=2)
    chat, raw = backend.ask([QUESTIONS[3], QUESTIONS[2]])
    backend.close()
    assert "template" in chat.refused
    assert raw.answer is not None
    assert backend.template_sha256 == ""


def test_what_an_answer_depends_on_is_in_the_name_of_a_run(folder: Path, tmp_path: Path) -> None:
    """Other weights, words of config.json and tokenizers are other runs, for either stack; so is another KV plan."""
    copies = [tmp_path / name for name in ("same", "weights", "config", "tokenizer")]
    for copied in copies:
        shutil.copytree(folder, copied)
    weights = bytearray((copies[1] / "model.safetensors").read_bytes())
    weights[-1] ^= 1
    (copies[1] / "model.safetensors").write_bytes(weights)
    config = json.loads((copies[2] / "config.json").read_text())
    (copies[2] / "config.json").write_text(json.dumps(config | {"rope_theta": 5e5}))
    tokenizer = json.loads((copies[3] / "tokenizer.json").read_text())
    (copies[3] / "tokenizer.json").write_text(json.dumps(tokenizer | {"truncation": None}, indent=1))
    stated = [identity(where) for where in (folder, *copies)]
    assert stated[0] == stated[1]
    assert len({json.dumps(each) for each in stated}) == 4
    documents = []
    plan = tmp_path / "kv_config.json"
    for where, bits in ((folder, 8), (copies[0], 8), (copies[2], 8), (copies[0], 4)):
        layers = json.loads((where / "config.json").read_text())["num_hidden_layers"]
        plan.write_text(json.dumps([{"layer_idx": i, "bits": bits, "group_size": 32} for i in range(layers)]))
        backend = EngineBackend(str(where), batch=1, kv=f"mixed:{plan}")
        documents.append(json.dumps(backend.document))
        backend.close()
    assert documents[0] == documents[1]
    assert len(set(documents)) == 3
    # A new word of the configuration is either in the name, or here because no answer depends on it.
    elsewhere = {"model", "kv_budget", "memory_budget", "queue", "room", "idle_s", "drive"}
    backend = EngineBackend(str(copies[0]), batch=1, prefix_cache=1000)
    backend.close()
    assert {f.name for f in fields(EngineConfig)} - elsewhere <= backend.document.keys()
    assert "prefix_cache" not in json.loads(documents[0])


def test_a_dated_template_asks_the_same_on_another_day(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Prompts, the name of the run and conversations of a text set. Fails if one of them reads the clock."""
    config = json.loads((folder / "tokenizer_config.json").read_text())
    dated = folder.with_name("dated")
    shutil.copytree(folder, dated)
    template = TEMPLATE + "{% set today = strftime_now('%d %b %Y') %}{{ today }}"
    (dated / "tokenizer_config.json").write_text(json.dumps(config | {"chat_template": template}))
    chat = ChatItem(id="c", domain="calls", text="", chats=((({"role": "user", "content": "hi"},), ()),))
    found = []
    for day in (3, 4):

        class Clock(datetime):
            @classmethod
            def now(cls, tz: tzinfo | None = None, day: int = day) -> Clock:
                return cls(2031, 5, day, tzinfo=tz)

        monkeypatch.setattr("transformers.utils.chat_template_utils.datetime", Clock)
        tokenizer = load_tokenizer(dated)
        plain = tokenizer.decode(tokenizer.apply_chat_template([{"role": "user", "content": "hi"}]))
        assert plain.endswith(f"0{day} May 2031")
        local = Local(tokenizer, None)
        ids, _, refused = local.put(QUESTIONS[3])
        assert not refused
        found.append((ids, local.template_sha256, encoded(tokenizer, chat)))
    assert found[0] == found[1]
    assert tokenizer.decode(found[0][0]).endswith("01 Jan 2026")


def test_the_seam_is_cut_by_the_length_of_the_context_alone() -> None:
    class Merging:
        has_template = False

        def encode_prompt(self, text: str) -> list[int]:
            return [len(word) for word in text.replace("ab", "a b").split(" ") if word]

    context, each = choice_ids(Choices(context="one two ", continuations=("three", "")), Merging())  # type: ignore[arg-type]
    assert (context, each) == ([3, 3], [[5], []])


# -- a server ------------------------------------------------------------------------------------------------------


class Server:
    """Answers as servers do. echo: whether prompts come back with log-probabilities."""

    def __init__(self, *, echo: bool = True, status: int = 200) -> None:
        self.echo, self.status = echo, status
        self.bodies: list[tuple[str, dict[str, Any]]] = []

    def __call__(self, request: httpx.Request) -> httpx.Response:
        body = json.loads(request.content)
        self.bodies.append((request.url.path, body))
        if self.status != 200:
            return httpx.Response(self.status, text="no")
        if request.url.path.endswith("/chat/completions"):
            call = {"function": {"name": "f", "arguments": '{"a": 1}'}}
            message = {"content": "done", "tool_calls": [call] if "tools" in body else []}
            return self._json([{"message": message, "finish_reason": "stop"}])
        choice: dict[str, Any] = {"text": " four", "finish_reason": "length"}
        if body.get("echo") and self.echo:
            words = body["prompt"].split(" ")
            offsets = [sum(len(w) + 1 for w in words[:i]) - (i > 0) for i in range(len(words))]
            top = [None] + [{"x": -0.5 * i} for i in range(1, len(words))]
            choice["logprobs"] = {
                "tokens": words,
                "text_offset": offsets,
                "token_logprobs": [None] + [-1.0 * i for i in range(1, len(words))],
                "top_logprobs": top,
            }
        return self._json([choice])

    def _json(self, choices: list[Any]) -> httpx.Response:
        usage = {"prompt_tokens": 7, "completion_tokens": 3}
        return httpx.Response(200, json={"choices": choices, "usage": usage})


def client(server: Server) -> OpenAIBackend:
    return OpenAIBackend("http://host/v1", "m", batch=2, transport=httpx.MockTransport(server))


def test_a_server_is_asked_in_its_protocol() -> None:
    server = Server()
    text, chat = client(server).ask(
        [
            Generation(prompt="2+2=", max_tokens=5, stop=("\n",)),
            Generation(prompt=({"role": "user", "content": "f"},), max_tokens=9, tools=({"type": "function"},)),
        ]
    )
    assert text.answer is not None
    assert chat.answer is not None
    assert (text.answer.text, text.answer.finish_reason, text.answer.tokens) == (" four", "length", 3)
    assert chat.answer.text == 'done\n<tool_call>{"name": "f", "arguments": {"a": 1}}</tool_call>'
    bodies = dict(server.bodies)
    assert bodies["/v1/completions"] == {
        "model": "m", "prompt": "2+2=", "max_tokens": 5, "temperature": 0, "stop": ["\n"],
    }  # fmt: skip
    assert bodies["/v1/chat/completions"]["tools"] == [{"type": "function"}]


def test_likelihoods_are_those_of_the_continuation_s_tokens() -> None:
    (asked,) = client(Server()).ask([Choices(context="a b c", continuations=(" d e", " d"))])
    assert asked.answer is not None
    one, other = asked.answer.likelihoods
    assert (one.nats, one.tokens, one.greedy) == (-7.0, 2, False)
    assert (other.nats, other.tokens) == (-3.0, 1)


def test_a_server_that_echoes_nothing_refuses_likelihoods_alone() -> None:
    choices, text = client(Server(echo=False)).ask([QUESTIONS[4], Generation(prompt="x", max_tokens=2)])
    assert (choices.answer, choices.refused) == (None, NO_ECHO)
    assert text.answer is not None


def test_what_a_server_says_against_one_question_is_told_and_a_dead_server_raises() -> None:
    (asked,) = client(Server(status=400)).ask([Generation(prompt="x", max_tokens=2)])
    assert "the server refuses: no" in asked.refused
    for status in (401, 404, 500):
        with pytest.raises(ServerFailed):
            client(Server(status=status)).ask([Generation(prompt="x", max_tokens=2)])
    with pytest.raises(errors.InvalidValue, match="openai:ftp"):
        OpenAIBackend("ftp://host", "m", batch=1)


def test_a_message_is_its_text_and_its_calls() -> None:
    assert message_text({"content": None, "tool_calls": None}) == ""
