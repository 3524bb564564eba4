"""The public door on a tiny model: what is asked for is applied, or refused where it is asked."""

from __future__ import annotations

import json
import shutil
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np
import pytest

from engine import Engine, Request, SamplingParams, errors, load

PROMPT = [5, 9, 33, 60, 12, 7, 44]
GREEDY = SamplingParams(max_tokens=24, ignore_eos=True)


def sampled(seed: int | None, **fields: object) -> SamplingParams:
    return SamplingParams(max_tokens=24, temperature=1.0, seed=seed, ignore_eos=True, **fields)  # type: ignore[arg-type]


def test_greedy_follows_the_teacher_forced_logits(text_engine: Engine) -> None:
    g = text_engine.generate(PROMPT, GREEDY, taps=("logits", "logprobs"))
    assert len(set(g.tokens)) > 3
    assert g.finish_reason == "length"
    assert g.usage.prompt_tokens == 7
    assert g.usage.completion_tokens == len(g.tokens) == 24
    forced = text_engine.logits([*PROMPT, *g.tokens[:-1]], tail=24)
    assert mx.array_equal(forced[-24:], g.taps["logits"])
    assert mx.argmax(g.taps["logprobs"], axis=-1).tolist() == list(g.tokens)


def test_chunks_do_not_change_native_bits(text_engine: Engine) -> None:
    ids = [(i * 31) % 90 + 2 for i in range(300)]
    whole = text_engine.logits(ids)
    for options in ({"chunk": 7}, {"chunk": 1}, {"head": 5}, {"tail": 40}, {"chunk": 64, "head": 3, "tail": 2}):
        assert mx.array_equal(whole, text_engine.logits(ids, **options)), options


def test_trace_reports_every_layer(text_engine: Engine) -> None:
    trace = text_engine.trace(PROMPT, layers=True)
    assert sorted(trace.layers) == ["layer.-1", "layer.0", "layer.1", "layer.2"]
    assert {tuple(a.shape) for a in trace.layers.values()} == {(7, 64)}
    assert trace.kv_live == ("native",) * 7


def test_the_lens_behind_the_last_layer_is_the_model(text_engine: Engine) -> None:
    """One forward, so that the lens multiplies what the model did; across forwards with the bundled BLAS."""
    trace = text_engine.trace(PROMPT, tail=4, lens=4)
    assert sorted(trace.lens) == ["lens.-1", "lens.0", "lens.1", "lens.2"]
    assert {tuple(a.shape) for a in trace.lens.values()} == {(4, trace.logits.shape[1])}
    assert trace.layers == {}
    assert mx.array_equal(trace.lens["lens.2"], trace.logits[-4:])
    assert not mx.array_equal(trace.lens["lens.1"], trace.logits[-4:])
    with pytest.raises(errors.InvalidValue, match="lens=8"):
        text_engine.trace(PROMPT, lens=8)


def test_a_lens_that_a_graph_does_not_have_is_refused(text_engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(text_engine._model.decoder, "outlet", lambda x, ctx: x)
    with pytest.raises(errors.InvalidValue, match="no single stream that the final norm takes"):
        text_engine.trace(PROMPT, lens=2)


@pytest.mark.parametrize("prefix", [1, 63, 64, 100, 260])
def test_a_run_from_a_kept_prefix_has_the_bits_of_a_cold_one(text_folder: Path, prefix: int) -> None:
    ids = [(i * 31) % 90 + 2 for i in range(300)]
    for kv in ("native", "kv4:on-write"):
        with load(text_folder, kv=kv) as engine:
            cold = engine.trace(ids, chunk=64, tail=40, layers=True)
            warm = engine.trace(ids, chunk=64, tail=40, layers=True, prefix=prefix)
        assert mx.array_equal(cold.logits, warm.logits)
        assert all(mx.array_equal(cold.layers[name], warm.layers[name]) for name in cold.layers)
        assert warm.kv_live == cold.kv_live
        # but for the slack, which follows how the tokens came
        assert [replace(c, kv_bytes=0) for c in warm.caches] == [replace(c, kv_bytes=0) for c in cold.caches]


def test_a_converting_scheme_is_kept_at_multiples_of_the_chunk_only(text_folder: Path) -> None:
    ids = [(i * 31) % 90 + 2 for i in range(300)]
    with load(text_folder, kv="kv4") as engine:
        warm = engine.trace(ids, chunk=64, tail=40, prefix=128)
        assert mx.array_equal(engine.logits(ids, chunk=64, tail=40), warm.logits)
        with pytest.raises(errors.InvalidValue, match=r"prefix=100 .*a multiple of 64 tokens, for kv=kv4"):
            engine.trace(ids, chunk=64, tail=40, prefix=100)


@pytest.mark.parametrize(
    "options",
    [
        {"chunk": 0}, {"head": 7}, {"tail": 0}, {"tail": 8}, {"head": 3, "tail": 5}, {"prefix": -1}, {"prefix": 7},
        {"prefix": 4, "tail": 4}, {"prefix": 2, "head": 2}, {"prefix": 2, "sizes": (3, 4)}, {"prefix": True},
    ],
)  # fmt: skip
def test_trace_refuses_impossible_splits(text_engine: Engine, options: dict[str, Any]) -> None:
    with pytest.raises(errors.InvalidValue):
        text_engine.trace(PROMPT, **options)


def test_seeds(text_engine: Engine) -> None:
    one, again, two = (text_engine.generate(PROMPT, sampled(seed)).tokens for seed in (1, 1, 2))
    assert one == again != two
    free = text_engine.generate(PROMPT, sampled(None))
    assert text_engine.generate(PROMPT, sampled(free.plan.seed)).tokens == free.tokens
    assert text_engine.generate(PROMPT, sampled(None)).tokens != free.tokens


@pytest.mark.parametrize(
    "change",
    [
        {"repetition_penalty": 1.7},
        {"presence_penalty": 3.0},
        {"frequency_penalty": 2.0},
        {"logit_bias": {5: 20.0}},
    ],
)
def test_every_processor_is_applied(text_engine: Engine, change: dict[str, object]) -> None:
    plain = text_engine.generate(PROMPT, GREEDY).tokens
    changed = SamplingParams(max_tokens=24, ignore_eos=True, **change)  # type: ignore[arg-type]
    assert text_engine.generate(PROMPT, changed).tokens != plain


@pytest.mark.parametrize("change", [{"top_k": 1}, {"top_p": 1e-6}, {"min_p": 1.0}])
def test_every_filter_is_applied(text_engine: Engine, change: dict[str, object]) -> None:
    greedy = text_engine.generate(PROMPT, GREEDY).tokens
    assert text_engine.generate(PROMPT, sampled(3)).tokens != greedy
    assert text_engine.generate(PROMPT, sampled(3, **change)).tokens == greedy


def test_taps_keep_unprocessed_logits(text_engine: Engine) -> None:
    biased = SamplingParams(max_tokens=3, logit_bias={5: 50.0}, repetition_penalty=1.3, ignore_eos=True)
    g = text_engine.generate(PROMPT, biased, taps=("logits", "logprobs"))
    assert g.tokens == (5, 5, 5)
    assert mx.array_equal(g.taps["logits"], text_engine.logits([*PROMPT, 5, 5], tail=3)[-3:])
    assert g.taps["logprobs"][0].argmax().item() == 5


def test_logprobs_agree_with_the_full_vector(text_engine: Engine) -> None:
    params = SamplingParams(max_tokens=6, top_logprobs=3, ignore_eos=True)
    g = text_engine.generate(PROMPT, params, taps=("logprobs",))
    for row, entry, token in zip(g.taps["logprobs"], g.logprobs, g.tokens, strict=True):
        assert entry.token == token
        assert entry.logprob == row[token].item()
        assert entry.top[0] == (token, entry.logprob)
        assert [value for _, value in entry.top] == sorted(row.tolist(), reverse=True)[:3]
    assert text_engine.generate(PROMPT, GREEDY).logprobs == ()


def test_forced_tokens_are_fed(text_engine: Engine) -> None:
    forced = (3, 80, 14)
    g = text_engine.generate(PROMPT, SamplingParams(top_logprobs=0), forced_tokens=forced, taps=("logits",))
    assert g.tokens == forced
    assert g.finish_reason == "length"
    assert mx.array_equal(g.taps["logits"], text_engine.logits([*PROMPT, 3, 80], tail=3)[-3:])
    assert [entry.token for entry in g.logprobs] == list(forced)


def test_an_eos_token_stops_and_is_in_tokens_but_not_in_text(text_engine: Engine) -> None:
    g = text_engine.generate("Hello", SamplingParams(max_tokens=5, logit_bias={1: 100.0}))
    assert (g.tokens, g.text, g.finish_reason) == ((1,), "", "stop")
    ignored = text_engine.generate("Hello", SamplingParams(max_tokens=5, logit_bias={1: 100.0}, ignore_eos=True))
    assert (len(ignored.tokens), ignored.finish_reason) == (5, "length")


def test_stop_strings_cut_the_text_across_tokens(text_engine: Engine) -> None:
    plain = text_engine.generate("Hello", GREEDY)
    assert plain.text == text_engine.tokenizer.decode(plain.tokens)  # type: ignore[union-attr]
    stop = plain.text[6:9]
    cut = plain.text.index(stop)
    params = SamplingParams(max_tokens=24, ignore_eos=True, stop=(stop,))
    g = text_engine.generate("Hello", params)
    assert (g.text, g.finish_reason) == (plain.text[:cut], "stop")
    assert g.tokens == plain.tokens[: len(g.tokens)]
    events = list(text_engine.stream("Hello", params))
    assert "".join(event.text for event in events) == g.text
    assert tuple(t for event in events for t in event.tokens) == g.tokens
    assert events[-1].finish_reason == "stop"
    handle = text_engine.submit(Request(prompt="Hello", sampling=params))
    assert len(list(handle.events())) == len(events)
    assert list(handle.events()) == []


def test_chat_uses_the_template(text_engine: Engine) -> None:
    chat = text_engine.generate([{"role": "user", "content": "Hi"}], GREEDY)
    plain = text_engine.generate("user: Hi\nassistant: ", GREEDY)
    assert chat.tokens == plain.tokens


def test_messages_without_a_template_are_refused(text_folder: Path, tmp_path: Path) -> None:
    folder = tmp_path / "no-template"
    shutil.copytree(text_folder, folder)
    settings = json.loads((folder / "tokenizer_config.json").read_text())
    del settings["chat_template"]
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    with load(folder) as engine, pytest.raises(errors.TemplateMissing):
        engine.generate([{"role": "user", "content": "Hi"}])


@pytest.mark.parametrize("prompt", ["", [], ()])
def test_an_empty_prompt_is_refused(text_engine: Engine, prompt: object) -> None:
    with pytest.raises(errors.EmptyPrompt):
        text_engine.generate(prompt)  # type: ignore[arg-type]


@pytest.mark.parametrize("prompt", [[5, 101], [-1], [True], [1.5]])
def test_ids_outside_the_vocabulary_are_refused(text_engine: Engine, prompt: list[int]) -> None:
    with pytest.raises(errors.InvalidValue, match="token id"):
        text_engine.generate(prompt)


def test_a_list_of_numpy_integers_is_a_prompt(text_engine: Engine) -> None:
    """Planted break: it was refused as not an integer; forced tokens were too."""
    listed: list[Any] = list(np.array(PROMPT, dtype=np.int32))
    got = text_engine.generate(listed, GREEDY, forced_tokens=tuple(np.array([7, 8], dtype=np.uint16)))
    assert got.tokens == text_engine.generate(PROMPT, GREEDY, forced_tokens=(7, 8)).tokens
    assert {type(token) for token in got.tokens} == {int}
    with pytest.raises(errors.InvalidValue, match="token id"):
        text_engine.generate([np.bool_(True)])


def test_values_that_this_model_cannot_honour_are_refused_at_submission(text_engine: Engine) -> None:
    for params in (SamplingParams(temperature=1, top_k=101), SamplingParams(logit_bias={500: 1.0})):
        with pytest.raises(errors.InvalidValue):
            text_engine.submit(Request(prompt=PROMPT, sampling=params))
    with pytest.raises(errors.InvalidValue, match="top_logprobs"):
        text_engine.generate(PROMPT, SamplingParams(top_logprobs=102))
    with pytest.raises(errors.UnknownField, match="forced_tokens"):
        text_engine.generate(PROMPT, GREEDY, n=2)


def test_a_folder_without_tokenizer_takes_ids_only(llama_folder: Path) -> None:
    with load(llama_folder) as engine:
        assert len(engine.generate(PROMPT, GREEDY).tokens) == 24
        with pytest.raises(errors.InvalidValue, match="no tokenizer"):
            engine.generate("text")
        with pytest.raises(errors.InvalidValue, match="stop"):
            engine.generate(PROMPT, SamplingParams(stop="a"))


@pytest.mark.parametrize(("kv", "status"), [("native", "native"), ("kv8", "affine8:g64"), ("kv4:g32", "affine4:g32")])
def test_the_asked_scheme_is_live_on_every_layer(llama_folder: Path, kv: str, status: str) -> None:
    with load(llama_folder, kv=kv) as engine:
        g = engine.generate(PROMPT, GREEDY)
        assert g.kv_status == status
        assert g.plan.kv == kv
        assert g.plan.kv_layers == (status,) * 3 == tuple(layer.scheme for layer in g.caches)
        assert {layer.offset for layer in g.caches} == {7 + 23}
        block = next(engine.score([PROMPT], tail=3))
        assert block.positions == (4, 5, 6)
        assert block.kv_live == (status,) * 3


def test_a_start_that_is_never_reached_is_said(llama_folder: Path) -> None:
    with load(llama_folder, kv="kv8:start=5000") as engine:
        g = engine.generate(PROMPT, GREEDY)
        assert g.kv_status == "native (start not reached)"
        assert {layer.scheme for layer in g.caches} == {"native"}


def test_manual_drive_takes_one_turn_at_a_time(llama_folder: Path) -> None:
    with load(llama_folder, drive="manual", prefill_chunk=3) as engine:
        handle = engine.submit(Request(prompt=PROMPT, sampling=SamplingParams(max_tokens=2, ignore_eos=True)))
        assert engine.describe_caches(handle) == ()
        offsets = []
        while engine.step():
            offsets.append({layer.offset for layer in engine.describe_caches(handle)})
        assert offsets == [{3}, {8}, {8}]  # a chunk; the last chunk, a step and the one behind it; a step
        assert handle.result().finish_reason == "length"
        with pytest.raises(errors.WrongThread):
            _in_thread(engine.step)


def test_thread_drive_refuses_step(text_engine: Engine) -> None:
    with pytest.raises(errors.WrongThread):
        text_engine.step()


def _in_thread(function: Callable[[], object]) -> object:
    outcome: list[object] = []

    def run() -> None:
        try:
            outcome.append(function())
        except errors.FrontierError as error:
            outcome.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    if isinstance(outcome[0], errors.FrontierError):
        raise outcome[0]
    return outcome[0]


def test_many_threads_get_their_own_answers(text_engine: Engine) -> None:
    expected = [text_engine.generate([p, 7, 9], sampled(p)).tokens for p in range(2, 8)]
    results: dict[int, tuple[int, ...]] = {}

    def ask(p: int) -> None:
        results[p] = text_engine.generate([p, 7, 9], sampled(p)).tokens

    threads = [threading.Thread(target=ask, args=(p,)) for p in range(2, 8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [results[p] for p in range(2, 8)] == expected


def test_cancel_ends_a_request_and_the_next_one_runs(text_engine: Engine) -> None:
    handle = text_engine.submit(Request(prompt=PROMPT, sampling=SamplingParams(max_tokens=100_000, ignore_eos=True)))
    events = handle.events()
    next(events)
    handle.cancel()
    g = handle.result()
    assert g.finish_reason == "cancelled"
    assert 1 <= len(g.tokens) < 100_000
    assert len(text_engine.generate(PROMPT, GREEDY).tokens) == 24


def test_close_ends_what_is_running(llama_folder: Path) -> None:
    engine = load(llama_folder)
    handle = engine.submit(Request(prompt=PROMPT, sampling=SamplingParams(max_tokens=100_000, ignore_eos=True)))
    engine.close()
    engine.close()
    with pytest.raises(errors.EngineClosed):
        handle.result()
    with pytest.raises(errors.EngineClosed):
        engine.generate(PROMPT)
