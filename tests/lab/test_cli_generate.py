"""`frontier generate` and `frontier chat` over a fake engine: flags, prompts, streams, documents."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

import engine
from engine import Event, Generation, Plan, Request, Usage
from engine.types import Timing
from lab import cli

GENERATE = ["generate", "--model", "m"]


class Handle:
    def __init__(self, pieces: Sequence[str], result: Generation) -> None:
        self._pieces, self._result = pieces, result

    def events(self) -> Iterator[Event]:
        for i, piece in enumerate(self._pieces):
            yield Event(tokens=(i,), text=piece)

    def result(self) -> Generation:
        return self._result

    def cancel(self) -> None:
        pass


class Tokenizer:
    has_template = True


class FakeEngine:
    """Answers every request with the same pieces and remembers what it was asked."""

    def __init__(self) -> None:
        self.loaded: dict[str, Any] = {}
        self.requests: list[Request] = []
        self.tokenizer = Tokenizer()
        self.closed = False

    def load(self, model: str, *, progress: Callable[..., None], **options: Any) -> FakeEngine:
        self.loaded = {"model": model, **options}
        return self

    def prefix_status(self) -> None:
        return None

    def submit(self, request: Request) -> Handle:
        self.requests.append(request)
        seed = 99 if request.sampling.seed is None else request.sampling.seed
        plan = Plan("m", "0" * 64, "float32", self.loaded.get("kv", "native"), (), "decode", 2048,
                    request.sampling.max_tokens, seed, "bundled", "here")  # fmt: skip
        result = Generation(
            tokens=(1, 2), text="Hello there", finish_reason="stop", logprobs=(), usage=Usage(7, 2),
            timing=Timing(10.0, 8.0, 40.0, 875.0, 50.0, 123_000_000), plan=plan, kv_status="native", caches=(),
        )  # fmt: skip
        return Handle(["Hello", " there"], result)

    def __enter__(self) -> FakeEngine:
        return self

    def __exit__(self, *_: object) -> None:
        self.closed = True


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> FakeEngine:
    fake = FakeEngine()
    monkeypatch.setenv(cli.BLAS_ENV, "bundled")
    monkeypatch.setattr(engine, "load", fake.load, raising=False)
    return fake


def test_generate_prints_what_mlx_lm_prints(fake: FakeEngine, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main([*GENERATE, "--prompt", r"one\ntwo", "--system-prompt", "Be brief."]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "==========",
        "Hello there",
        "==========",
        "Prompt: 7 tokens, 875.000 tokens-per-sec",
        "Generation: 2 tokens, 50.000 tokens-per-sec",
        "Peak memory: 0.123 GB",
    ]
    (request,) = fake.requests
    assert request.prompt == [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "one\ntwo"}]
    assert fake.loaded == {"model": "m"}  # what is not said has the default of the machine
    assert fake.closed


def test_generate_json(fake: FakeEngine, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main([*GENERATE, "-p", "x", "--json", "--kv", "kv8"]) == 0
    out, err = capsys.readouterr()
    document = json.loads(out)
    assert (document["text"], document["tokens"], document["plan"]["seed"]) == ("Hello there", [1, 2], 99)
    assert "Hello there" in err
    assert "KV cache: kv8 asked, native at the end" in err


def test_every_sampling_flag_arrives(fake: FakeEngine) -> None:
    line = (
        "-p x --temp 0.7 --top-p 0.9 --min-p 0.05 --min-tokens-to-keep 2 --top-k 40 --xtc-probability 0.5 "
        "--xtc-threshold 0.2 --repetition-penalty 1.1 --repetition-context-size 30 --presence-penalty -0.5 "
        "--presence-context-size 31 --frequency-penalty 0.25 --frequency-context-size 32 --logit-bias 5:-100 "
        "--logit-bias 7=1.5 --seed 11 --stop END --stop STOP --ignore-eos --max-tokens 9 --top-logprobs 3"
    )
    assert cli.main([*GENERATE, *line.split()]) == 0
    assert fake.requests[0].sampling == engine.SamplingParams(
        max_tokens=9, temperature=0.7, seed=11, stop=("END", "STOP"), ignore_eos=True, top_p=0.9, top_k=40,
        min_p=0.05, min_tokens_to_keep=2, xtc_probability=0.5, xtc_threshold=0.2,
        repetition_penalty=1.1, repetition_context_size=30, presence_penalty=-0.5, presence_context_size=31,
        frequency_penalty=0.25, frequency_context_size=32,
        logit_bias={5: -100.0, 7: 1.5}, top_logprobs=3,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("flags", "options"),
    [
        ("--kv kv4:g32", {"kv": "kv4:g32"}),
        ("--kv-bits 8", {"kv": "kv8:g64:start=5000"}),
        ("--kv-bits 4 --kv-group-size 32 --quantized-kv-start 0", {"kv": "kv4:g32:start=0"}),
        ("--l1", {"kv": "native"}),
        ("--recurrence plain", {"recurrence": "plain"}),
        ("--dtype float32 --prefill-step-size 512", {"dtype": "float32", "prefill_chunk": 512}),
        ("--dtype auto", {"dtype": "auto"}),
    ],
)
def test_model_flags(fake: FakeEngine, flags: str, options: dict[str, Any]) -> None:
    assert cli.main([*GENERATE, "-p", "x", *flags.split()]) == 0
    assert fake.loaded == {"model": "m", **options}


@pytest.mark.parametrize(
    ("flags", "named"),
    [
        ("-p x --l2", "'m' is neither a folder"),
        ("-p x --l1 --kv kv8", "--l1"),
        ("-p x --l1 --kv native", "--l1"),
        ("-p x --l2 --kv kv8", "--l2"),
        ("-p x --l2 --kv-bits 8", "--l2"),
        ("-p x --l1 --l2", "not allowed with"),
        ("-p x --kv kv8 --kv-bits 8", "--kv-bits"),
        ("-p x --kv-group-size 32", "only together with --kv-bits"),
        ("-p x --draft-model y", "--draft-model is not built"),
        ("-p x --max-kv-size 16", "--max-kv-size is not built"),
        ("-p x --max-tokens 0", "max_tokens=0"),
        ("-p x --logit-bias five:1", "--logit-bias"),
        ("-p x --chat-template-config [1]", "a JSON object"),
        ("-p x --ignore-chat-template --system-prompt y", "--system-prompt"),
        ("", "required: --prompt"),
    ],
)
def test_generate_refuses(fake: FakeEngine, capsys: pytest.CaptureFixture[str], flags: str, named: str) -> None:
    assert cli.main([*GENERATE, *flags.split()]) == 2
    err = capsys.readouterr().err
    assert named in err
    assert err.count("\n") == 1
    assert fake.requests == []


def test_l2_is_the_plan_in_the_models_folder(
    fake: FakeEngine, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "config.json").write_text("{}")
    line = ["--model", str(tmp_path), "-p", "x", "--l2"]
    assert cli.main(["generate", *line]) == 2
    assert f"{tmp_path / 'kv_config.json'}: not there" in capsys.readouterr().err
    assert fake.requests == []
    (tmp_path / "kv_config.json").write_text('[{"layer_idx": 0, "bits": 8}]')
    assert cli.main(["generate", *line]) == 0
    assert fake.loaded["kv"] == f"mixed:{tmp_path / 'kv_config.json'}"
    assert capsys.readouterr().out.startswith(f"--l2: --kv mixed:{tmp_path / 'kv_config.json'}\n")


def test_empty_prompt_is_refused(fake: FakeEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    assert cli.main([*GENERATE, "-p", ""]) == 2
    monkeypatch.setattr("sys.stdin", io.StringIO(""))
    assert cli.main([*GENERATE, "-p", "-"]) == 2
    assert fake.requests == []


def test_prompt_from_stdin_and_without_template(fake: FakeEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("from a pipe"))
    assert cli.main([*GENERATE, "-p", "-", "--ignore-chat-template"]) == 0
    fake.tokenizer.has_template = False
    assert cli.main([*GENERATE, "-p", "as it is"]) == 0
    assert [request.prompt for request in fake.requests] == ["from a pipe", "as it is"]


def test_chat_over_a_pipe(
    fake: FakeEngine, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("hi\n\nh\nagain\nr\nfresh\nq\nnever\n"))
    assert cli.main(["chat", "--model", "m", "--system-prompt", "S", "--seed", "5", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert [turn["user"] for turn in document["turns"]] == ["hi", "again", "fresh"]
    system, said = {"role": "system", "content": "S"}, {"role": "assistant", "content": "Hello there"}
    asked = [{"role": "user", "content": text} for text in ("hi", "again", "fresh")]
    assert [request.prompt for request in fake.requests] == [
        [system, asked[0]],
        [system, asked[0], said, asked[1]],
        [system, asked[2]],
    ]
    assert [request.sampling.seed for request in fake.requests] == [5, 6, 7]


def test_chat_needs_a_template(fake: FakeEngine, capsys: pytest.CaptureFixture[str]) -> None:
    fake.tokenizer.has_template = False
    assert cli.main(["chat", "--model", "m"]) == 2
    assert "no chat template" in capsys.readouterr().err
