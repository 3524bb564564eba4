"""The lab's configuration: closed, typed, and errors that list the known."""

from __future__ import annotations

from pathlib import Path

import pytest

from engine import errors
from lab import config

KV8 = (Path(__file__).resolve().parents[2] / "experiments" / "kv8.yaml").read_text(encoding="utf-8")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder of experiments with kv8 in it."""
    where = tmp_path / "experiments"
    where.mkdir()
    (where / "kv8.yaml").write_text(KV8, encoding="utf-8")
    return where


@pytest.mark.parametrize("name", config.names())
@pytest.mark.parametrize("profile", ["quick", "full"])
def test_every_experiment_of_the_repository_composes(name: str, profile: str) -> None:
    conf = config.compose(name, [f"profile={profile}"])
    assert conf.experiment.name == name
    assert conf.profile.decides is (profile == "full")
    assert conf.quads % conf.profile.quads_per_launch == 0


def test_full_profile_is_the_method() -> None:
    conf = config.compose("kv8")
    assert [(s.quads, s.alpha) for s in conf.profile.spends] == [(16, 0.005), (32, 0.0175)]
    assert (conf.profile.quads_per_launch, conf.profile.discard, conf.profile.aa_quads) == (2, 1, 16)
    assert (conf.machine.delta, conf.profile.cap_minutes) == (0.10, 20)


def test_overrides_and_groups_apply() -> None:
    conf = config.compose("kv8", ["machine=quiet", "experiment.delta=0.25", "profile.aa_quads=8"])
    assert (conf.machine.name, conf.delta, conf.profile.aa_quads) == ("quiet", 0.25, 8)
    timed = config.compose(
        "kv8", ["experiment.primary=decode_tok_s", "experiment.guardrails=[kv_bytes]", "experiment.delta=null"]
    )
    assert timed.delta == 0.10


def test_equal_configurations_have_equal_hashes() -> None:
    assert config.compose("kv8").sha256 == config.compose("kv8").sha256
    assert config.compose("kv8").sha256 != config.compose("kv8", ["experiment.delta=0.25"]).sha256


@pytest.mark.parametrize(
    ("name", "overrides", "kind", "words"),
    [
        ("kv9", [], errors.UnknownField, ("kv9", "kv4, kv8, ")),
        ("kv8", ["profile=fast"], errors.UnknownField, ("fast", "full, quick")),
        ("kv8", ["experiment.detla=1"], errors.UnknownField, ("detla", "delta, ")),
        ("kv8", ["profle=quick"], errors.UnknownField, ("profle", "profile")),
        ("kv8", ["experiment.delta.x=1"], errors.UnknownField, ("experiment.delta", "x")),
        ("kv8", ["nonsense"], errors.InvalidValue, ("nonsense", "key=value")),
        ("kv8", ["+experiment.new=1"], errors.InvalidValue, ("key=value",)),
        ("kv8", ["experiment=kv4"], errors.InvalidValue, ("experiment.name",)),
        ("kv8", ["experiment.delta=much"], config.BadConfig, ("much", "Float")),
        ("kv8", ["experiment.delta=-1"], errors.InvalidValue, ("delta", "above 0")),
        ("kv8", ["experiment.kind=mine"], errors.InvalidValue, ("mine", "oracle-owned, ours")),
        ("kv8", ["experiment.primary=speed"], errors.InvalidValue, ("speed", "decode_tok_s")),
        ("kv8", ["experiment.guardrails=[kv_bytes]"], errors.InvalidValue, ("other than the primary",)),
        ("kv8", ["experiment.candidate.kv=kv9x"], errors.FrontierError, ("kv9x",)),
        ("kv8", ["experiment.candidate.kv=native"], errors.InvalidValue, ("lever", "nothing")),
        ("kv8", ["experiment.candidate.chunk=512"], errors.InvalidValue, ("lever", "chunk, kv")),
        ("kv8", ["experiment.candidate.stack=vllm"], errors.InvalidValue, ("vllm", "mlx-lm")),
        ("kv8", ["experiment.expires_on='2027-06-01'"], errors.InvalidValue, ("2026-12-29",)),
        ("kv8", ["experiment.declared_on='soon'"], errors.InvalidValue, ("soon",)),
        ("kv8", ["profile.max_tokens=4"], errors.InvalidValue, ("max_tokens", "17")),
        ("kv8", ["profile.looks=[{quads: 3, alpha: 0.01}]"], errors.InvalidValue, ("quads_per_launch",)),
        ("kv8", ["profile.looks=[{quads: 4, alpha: 0.01}, {quads: 2, alpha: 0.01}]"], errors.InvalidValue, ("looks",)),
        ("kv8", ["profile.kl=[]"], errors.InvalidValue, ("profile.kl",)),
        ("kv8", ["profile.looks=["], config.BadConfig, ("kv8",)),
    ],
)
def test_bad_input_is_a_typed_error_that_lists_the_known(
    name: str, overrides: list[str], kind: type[errors.FrontierError], words: tuple[str, ...]
) -> None:
    with pytest.raises(kind) as caught:
        config.compose(name, overrides)
    for word in words:
        assert word in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("line", "kind", "words"),
    [
        ("colour: red", errors.UnknownField, ("colour", "hypothesis")),
        ("base: {stack: engine, kvv: native}", errors.UnknownField, ("kvv", "dtype")),
        ("delta: lots", config.BadConfig, ("lots",)),
        ("delta: [", config.BadConfig, ("kv8",)),
    ],
)
def test_a_bad_file_is_named(folder: Path, line: str, kind: type[errors.FrontierError], words: tuple[str, ...]) -> None:
    key = line.split(":")[0]
    kept = [old for old in KV8.splitlines() if not old.startswith(f"{key}:")]
    (folder / "kv8.yaml").write_text("\n".join([*kept, line]), encoding="utf-8")
    with pytest.raises(kind) as caught:
        config.compose("kv8", folder=folder)
    for word in words:
        assert word in str(caught.value)


def test_a_missing_field_and_a_wrong_name_are_named(folder: Path) -> None:
    text = "\n".join(line for line in KV8.splitlines() if not line.startswith("owner"))
    (folder / "kv8.yaml").write_text(text, encoding="utf-8")
    with pytest.raises(config.BadConfig, match="missing mandatory value: owner"):
        config.compose("kv8", folder=folder)
    (folder / "other.yaml").write_text(KV8, encoding="utf-8")
    with pytest.raises(errors.InvalidValue, match="name of its file"):
        config.compose("other", folder=folder)


def test_an_extension_needs_its_reason(folder: Path) -> None:
    longer = KV8.replace('expires_on: "2026-12-29"', 'expires_on: "2027-01-12"')
    (folder / "kv8.yaml").write_text(longer, encoding="utf-8")
    with pytest.raises(errors.InvalidValue, match="expires_on"):
        config.compose("kv8", folder=folder)
    (folder / "kv8.yaml").write_text(longer + "\nextension_reason: the quiet machine was away\n", encoding="utf-8")
    assert config.compose("kv8", folder=folder).experiment.expires_on == "2027-01-12"


def test_no_folder_of_experiments(tmp_path: Path) -> None:
    with pytest.raises(config.BadConfig, match="no folder of experiments"):
        config.names(tmp_path / "none")
