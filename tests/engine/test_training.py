"""The loop of training: masks, schedules, resumed runs, adapters, the head for one token more, saved folders."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np
import pytest
from training_models import MIXERS, VOCABULARY, drawn_rows

from engine import load
from engine.errors import CorruptFile, InvalidValue, WeightsMismatch
from engine.train import run
from engine.train.loop import Batch, Training
from engine.train.lora import Lora, merged
from engine.train.loss import next_token, row_losses
from engine.train.parameters import decoder_of, draw_parameters
from engine.train.schedule import Schedule, steps_from

CONFIG = MIXERS["attention"]


def batches(step: int) -> tuple[Any, Any]:
    rows = np.random.default_rng([7, step]).integers(0, VOCABULARY, (2, 9))
    return rows.astype(np.int32), np.ones((2, 8), np.float32)


def how(**changes: Any) -> Training:
    return Training(**{"rate": 1e-2, "seed": 3, "steps": 8, "warm_up": 2, "every": 2, "compiled": False, **changes})


def same(a: dict[str, mx.array], b: dict[str, mx.array]) -> bool:
    return a.keys() == b.keys() and all(mx.array_equal(a[name], b[name]).item() for name in a)


def test_masked_targets_count_for_nothing_and_weights_by_their_size() -> None:
    """A mask that is shifted by one would take the wrong target out."""
    spec = run.spec_of(CONFIG)
    parameters, rows = draw_parameters(spec, 1), drawn_rows(2, 6)
    losses, weights = np.array(row_losses(spec, parameters, rows)), np.zeros((2, 5), np.float32)
    weights[0, 2], weights[1, 4] = 1.0, 3.0
    found = next_token(spec)(parameters, rows, mx.array(weights)).item()
    assert found == pytest.approx(losses[0, 2] + 3 * losses[1, 4], rel=1e-6)
    changed = mx.array(np.where(np.arange(6) == 5, (np.array(rows) + 1) % VOCABULARY, np.array(rows)))
    assert (np.array(row_losses(spec, parameters, changed))[:, :4] == losses[:, :4]).all()


def test_same_seed_same_parameters_and_another_seed_others() -> None:
    first, again = (run.train_model(CONFIG, batches, how()).parameters for _ in range(2))
    assert same(first, again)
    assert not same(first, run.train_model(CONFIG, batches, how(seed=4)).parameters)


class Killed(Exception):
    pass


def until(step: int, batch: Batch = batches) -> Batch:
    def cut(asked: int) -> tuple[Any, Any]:
        if asked == step:
            raise Killed
        return batch(asked)

    return cut


def test_a_killed_run_goes_on_to_the_same_parameters(tmp_path: Path) -> None:
    """Moments, count, rate and curve all come back; a batch drawn by anything but the step would show."""
    whole, place = run.train_model(CONFIG, batches, how(keep_every=3)), tmp_path / "run.safetensors"
    with pytest.raises(Killed):
        run.train_model(CONFIG, until(5), how(keep_every=3), checkpoint=place)
    assert place.is_file()
    resumed = run.train_model(CONFIG, batches, how(keep_every=3), checkpoint=place)
    assert same(whole.parameters, resumed.parameters)
    assert not place.exists()


def test_a_checkpoint_of_another_run_is_refused(tmp_path: Path) -> None:
    place = tmp_path / "run.safetensors"
    with pytest.raises(Killed):
        run.train_model(CONFIG, until(5), how(keep_every=3), checkpoint=place)
    with pytest.raises(CorruptFile, match="another run"):
        run.train_model(CONFIG, batches, how(keep_every=3, seed=9), checkpoint=place)
    with pytest.raises(CorruptFile, match="not a checkpoint of this model"):
        run.train_model({**CONFIG, "num_hidden_layers": 1}, batches, how(), checkpoint=place)
    place.write_bytes(b"no checkpoint")
    with pytest.raises(CorruptFile):
        run.train_model(CONFIG, batches, how(), checkpoint=place)


def test_a_run_by_time_is_repeated_by_its_steps() -> None:
    """The number of steps that the time fixed gives the same decay, hence the same parameters."""
    timed = run.train_model(CONFIG, batches, how(steps=None, seconds=0.05))
    assert timed.steps % 4 == 0
    assert same(timed.parameters, run.train_model(CONFIG, batches, how(steps=timed.steps)).parameters)


def test_schedule() -> None:
    """Up, level, down: the decay begins where `steps_from` says."""
    rates = Schedule(rate=1.0, warm_up=4, steps=16).rates()
    values = [rates(mx.array(step)).item() for step in range(16)]
    assert values[:4] == pytest.approx([0.25, 0.4375, 0.625, 0.8125])
    assert values[4:13] == pytest.approx([1.0] * 9)
    assert values[13:] == pytest.approx([0.755, 0.51, 0.265])
    assert [steps_from(step) for step in (0, 3, 4, 12)] == [None, 4, None, 16]
    for changes in ({"rate": 0.0}, {"warm_up": 0}, {"steps": 0}):
        with pytest.raises(InvalidValue, match=next(iter(changes))):
            Schedule(**{"rate": 1.0, "warm_up": 4, "steps": 16, **changes})  # type: ignore[arg-type]


def test_steps_or_seconds() -> None:
    for changes in ({"steps": None}, {"seconds": 1.0}):
        with pytest.raises(InvalidValue, match="steps"):
            how(**changes)


def test_saved_folder_serves_what_was_trained(tmp_path: Path) -> None:
    """The public door reads it, and its logits are those of the training form on the rounded parameters."""
    made = run.train_model(CONFIG, batches, how())
    run.save_model(tmp_path / "model", CONFIG, made.parameters)
    config, parameters = run.read_parameters(tmp_path / "model")
    ids = drawn_rows(1, 7)
    wanted = next_token(run.spec_of(config))(parameters, ids, mx.ones((1, 6))).item()
    with load(tmp_path / "model", dtype="float32") as engine:
        logits = engine.logits([int(i) for i in np.array(ids[0, :-1])])
        lost = mx.logsumexp(logits, axis=-1) - mx.take_along_axis(logits, ids[0, 1:, None], axis=-1).squeeze(-1)
        assert lost.sum().item() == pytest.approx(wanted, rel=1e-5)
    with pytest.raises(InvalidValue, match="target"):
        run.save_model(tmp_path / "model", CONFIG, made.parameters)


def test_parameters_of_another_model_are_refused() -> None:
    spec = run.spec_of(CONFIG)
    parameters = draw_parameters(spec, 1)
    parameters.pop("model.norm.weight")
    with pytest.raises(WeightsMismatch, match=r"model\.norm\.weight"):
        decoder_of(spec, parameters)


def test_an_adapter_moves_the_loss_and_nothing_of_its_base(tmp_path: Path) -> None:
    spec, lora = run.spec_of(CONFIG), Lora(rank=2, scale=4.0, keys=("self_attn.q_proj", "mlp.down_proj"))
    run.save_model(tmp_path / "base", CONFIG, draw_parameters(spec, 1))
    before = (tmp_path / "base" / "model.safetensors").read_bytes()

    def one(step: int) -> tuple[Any, Any]:
        return batches(0)

    made = run.train_adapter(tmp_path / "base", lora, one, how(steps=30))
    assert (tmp_path / "base" / "model.safetensors").read_bytes() == before
    assert len(made.parameters) == 2 * 2 * CONFIG["num_hidden_layers"]
    assert made.curve[-1][1] < made.curve[0][1] - 0.05
    _, base = run.read_parameters(tmp_path / "base")
    path = "model.layers.0.mlp.down_proj"
    first, second = (made.parameters[f"{path}.lora_{side}"] for side in "ab")
    x = mx.random.normal((3, CONFIG["intermediate_size"]), key=mx.random.key(0))
    # One product of a sum, or the sum of two products: float32 rounds them apart.
    wanted = x @ base[f"{path}.weight"].T + lora.scale * ((x @ first) @ second)
    assert mx.allclose(x @ merged(base, made.parameters, lora.scale)[f"{path}.weight"].T, wanted, atol=1e-5)


def test_the_head_for_one_token_more_learns_the_token_after_the_next(tmp_path: Path) -> None:
    """Rows that count up: a head whose targets are shifted against what it sees would show, beginning or ending."""
    parameters = draw_parameters(run.spec_of(CONFIG), 1)
    parameters["model.embed_tokens.weight"] *= 20.0  # the head shares it: with small ones it could not be sure
    run.save_model(tmp_path / "base", CONFIG, parameters)

    def counting(step: int) -> tuple[Any, Any]:
        starts = np.random.default_rng([1, step]).integers(0, VOCABULARY, (8, 1))
        return ((starts + np.arange(9)) % VOCABULARY).astype(np.int32), np.ones((8, 8), np.float32)

    made = run.train_mtp(tmp_path / "base", counting, how(steps=80))
    assert made.curve[0][1] > 2.0
    assert made.curve[-1][1] < 1.0
