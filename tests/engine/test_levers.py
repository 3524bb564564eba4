"""The table of levers: one place for defaults, values, kinds and defaults by machine."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from engine import LEVERS, EngineConfig, errors, levers, parse_kv
from engine.kv.request import read_kv_config
from engine.levers import LEVER_TABLE, Lever, Variant, machine_defaults, read_levers, read_removals

ROOT = Path(__file__).resolve().parents[2]


def table(path: Path, **changes: object) -> Path:
    """A table of one lever with two variants."""
    row: dict[str, object] = {
        "what": "colour",
        "where": "engine",
        "default": "red",
        "machines": {},
        "variants": {"red": {"kind": "oracle-owned"}, "blue": {"kind": "ours", "files": ["engine/blue.py"]}},
    }
    path.write_text(json.dumps({"levers": {"colour": row | changes}, "removals": []}), encoding="utf-8")
    return path


def test_every_default_of_the_engine_is_the_tables() -> None:
    config = EngineConfig(model="m")
    own = [lever for lever in LEVERS.values() if lever.where == "engine"]
    assert {lever.name for lever in own} >= {"kv", "dtype", "prefill_chunk", "fuse", "compile"}
    for lever in own:
        assert config.__dict__[lever.name] == lever.default


@pytest.mark.parametrize(
    ("value", "variant", "kind"),
    [
        ("native", "native", "oracle-owned"),
        ("kv8:g64:start=0", "uniform", "oracle-owned"),
        ("kv8/4", "asymmetric", "ours"),
        ("mixed:some/kv_config.json", "mixed", "oracle-owned"),
        ("turbo:k8v3", "turbo", "ours"),
        ("kv8:on-write", "on-write", "ours"),
    ],
)
def test_a_kv_notation_belongs_to_one_variant(value: str, variant: str, kind: str) -> None:
    parse_kv(value)
    found = LEVERS["kv"].variant(value)
    assert (found.name, found.kind) == (variant, kind)


def test_a_value_of_no_registered_variant_is_refused() -> None:
    with pytest.raises(errors.InvalidValue, match="fuse='dense' is not allowed; allowed: none, quantized"):
        EngineConfig(model="m", fuse="dense")
    with pytest.raises(errors.UnknownField, match="unknown 'colour'"):
        levers.lever("colour")


def test_the_files_of_every_variant_are_in_the_tree() -> None:
    files = [file for lever in LEVERS.values() for variant in lever.variants.values() for file in variant.files]
    assert files
    assert [file for file in files if not (ROOT / file).is_file()] == []


def test_the_longest_machine_key_wins(tmp_path: Path) -> None:
    path = table(tmp_path / "levers.json", machines={"linux-": "red", "linux-x86_64-cpu": "blue"})
    lever = read_levers(path)["colour"]
    assert lever.default_on("linux-x86_64-cpu-bundled") == "blue"
    assert lever.default_on("linux-aarch64-cpu-bundled") == "red"
    assert lever.default_on("darwin-arm64-apple-m4") == "red"
    assert lever.variants["blue"].files == ("engine/blue.py",)


def test_load_takes_the_default_of_its_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    variants = {name: Variant(name=name, kind="ours") for name in ("none", "quantized")}
    fields = {"what": "x", "where": "engine", "default": "none", "variants": variants}
    special = Lever(name="fuse", machines={"linux-x86_64": "quantized"}, **fields)
    monkeypatch.setattr(levers, "LEVERS", {"fuse": special})
    assert machine_defaults(lambda: "linux-x86_64-cpu-bundled") == {"fuse": "quantized"}
    assert machine_defaults(lambda: "darwin-arm64") == {}
    monkeypatch.setattr(levers, "LEVERS", {"fuse": Lever(name="fuse", **fields)})
    assert machine_defaults(lambda: pytest.fail("the machine was asked for nothing")) == {}


@pytest.mark.parametrize(
    "changes",
    [
        {"default": "green"},
        {"machines": {"linux": "green"}},
        {"where": "elsewhere"},
        {"variants": {"red": {"kind": "theirs"}}},
    ],
)
def test_a_wrong_table_is_refused(tmp_path: Path, changes: dict[str, object]) -> None:
    with pytest.raises(errors.InvalidValue, match="colour"):
        read_levers(table(tmp_path / "levers.json", **changes))


def test_the_repositorys_table_reads() -> None:
    assert read_levers(LEVER_TABLE) == LEVERS
    assert isinstance(read_removals(LEVER_TABLE), list)


def test_a_kv_scheme_that_is_no_longer_registered_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    kv = LEVERS["kv"]
    left = {name: variant for name, variant in kv.variants.items() if name != "turbo"}
    monkeypatch.setitem(LEVERS, "kv", replace(kv, variants=left))
    for spelling in ("turbo:k8v3", "turbo:k8v3:on-write", "turbo:k4v2:skip", "turbo:k8v3:start=9:skip"):
        with pytest.raises(errors.InvalidValue, match="allowed: native, on-write, uniform, asymmetric, mixed"):
            parse_kv(spelling)
    assert parse_kv("kv8:on-write").on_write


@pytest.mark.parametrize(
    ("gone", "spelling"),
    [
        ("on-write", "kv8:on-write"),
        ("on-write", "kv8/4:g32:on-write:skip"),
        ("on-write", "turbo:k8v3:on-write"),
        ("asymmetric", "kv8/4"),
        ("asymmetric", "kv8/4:on-write"),
        ("uniform", "kv4:on-write"),
    ],
)
def test_a_variant_that_is_gone_is_refused_beside_others_too(
    monkeypatch: pytest.MonkeyPatch, gone: str, spelling: str
) -> None:
    """Catches a notation that still works because a registered option or storage is found in it."""
    parse_kv(spelling)
    kv = LEVERS["kv"]
    left = {name: variant for name, variant in kv.variants.items() if name != gone}
    monkeypatch.setitem(LEVERS, "kv", replace(kv, variants=left))
    with pytest.raises(errors.InvalidValue, match=f"kv='{spelling}' is not allowed"):
        parse_kv(spelling)


def test_a_plan_of_layers_does_not_outlive_its_storage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Catches unequal bits of keys and values that come in by a file once they are gone from the table."""
    path = tmp_path / "kv_config.json"
    path.write_text(json.dumps([{"layer_idx": 0, "k_bits": 8, "v_bits": 4}]), encoding="utf-8")
    assert read_kv_config(str(path), 1)
    kv = LEVERS["kv"]
    left = {name: variant for name, variant in kv.variants.items() if name != "asymmetric"}
    monkeypatch.setitem(LEVERS, "kv", replace(kv, variants=left))
    with pytest.raises(errors.InvalidValue, match="layer 0' is not allowed"):
        read_kv_config(str(path), 1)
