"""Every tiny architecture, both stacks live: equal in every cell, and the cells notice what they must.

`make test` runs the quick cells of each module's first recipe; `make test-matrix` all cells of every recipe, with
mutations.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from engine import errors
from oracles.arch import chosen, main, results_document
from oracles.architectures import ArchResult, ArchRun, Planned, forced, plan, prompts, sizes, vocabulary
from oracles.contract import GenerateProbe, OracleRefused, Probe
from oracles.exclusions import EXCLUSIONS
from oracles.modules import modules
from oracles.parity import DIFFERS, EQUAL, FAILED, NOT_RUN
from oracles.recipe import Form, Recipe, find_recipe, recipes, resolve
from oracles.recipes import GROUPS

# One recipe a group also runs with fusion on; three go through the mutations.
COMPILED = tuple(next(iter(resolve(place))) for place in GROUPS.values())
MUTATED = ("qwen3", "gemma3_text", "mixtral")


@pytest.fixture(scope="module")
def arch(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ArchRun]:
    with ArchRun(root=tmp_path_factory.mktemp("models")) as run:
        yield run


def judge(results: list[ArchResult]) -> list[ArchResult]:
    """Nothing differs or failed, and what the oracle cannot run says why."""
    assert [result.line() for result in results if result.bad] == []
    assert all(result.why for result in results if result.status == NOT_RUN)
    return results


@pytest.mark.parametrize("name", sorted(set(recipes()) & set(modules())))
def test_quick_cells_are_equal(arch: ArchRun, name: str) -> None:
    judge(list(arch.cells(name, recipes()[name], compiled=name in COMPILED)))


@pytest.mark.parametrize("name", MUTATED)
def test_every_kind_of_parameter_moves_both_sides_equally(arch: ArchRun, name: str) -> None:
    results = judge(list(arch.mutations(name, find_recipe(name))))
    assert len(results) > 8
    assert {result.status for result in results} == {EQUAL}


@pytest.mark.matrix
@pytest.mark.parametrize("name", sorted(recipes()))
def test_all_cells_and_mutations_are_equal(arch: ArchRun, name: str) -> None:
    recipe = recipes()[name]
    results = judge([*arch.cells(name, recipe, full=True), *arch.mutations(name, recipe)])
    if not any(entry.covers(name, Form()) for entry in EXCLUSIONS):
        assert EQUAL in {result.status for result in results}


def test_prompts_are_shorter_than_equal_to_and_several_times_the_window() -> None:
    assert prompts(Recipe(config={"model_type": "x"}, window=8)) == (5, 8, 35)
    assert prompts(Recipe(config={"model_type": "x"})) == (40,)
    assert sizes(16, 7) == (7, 7, 2, *[1] * 8, 5, 1, 1)
    assert sizes(3, 2048) == (3, *[1] * 8, 5, 1, 1)


def test_token_ids_fit_the_smallest_vocabulary() -> None:
    assert vocabulary({"vocab_size": 101, "text_config": {"vocab_size": 97}}) == 97
    assert vocabulary({"text_config": {"num_vocab": 90}}) == 90
    with pytest.raises(errors.InvalidValue, match="vocab_size"):
        vocabulary({"model_type": "x"})
    for name, recipe in recipes().items():
        assert vocabulary(recipe.config) > 64, name


def test_the_quick_plan_holds_what_every_module_must_show() -> None:
    recipe = replace(find_recipe("qwen3"), window=8)
    cells = plan(recipe, full=False)
    shown = {(cell.form.dtype, cell.form.quant, cell.form.layout, cell.label) for cell in cells}
    for chunk in (2048, 7, 1):
        for prompt in (5, 8, 35):
            assert ("float32", None, "saved", f"chunk {chunk} prompt {prompt}") in shown
    assert ("bfloat16", None, "saved", "chunk 7 prompt 35") in shown
    assert ("float32", "q4g32", "saved", "chunk 7 prompt 35") in shown
    assert ("float32", None, "hub", "chunk 7 prompt 35") in shown
    assert any(isinstance(cell.probe, GenerateProbe) for cell in cells)
    assert not any(cell.compile for cell in cells)
    brief = [(str(cell.form), cell.label) for cell in plan(recipe, full=False, variant=True)]
    assert brief == [("float32", "chunk 7 prompt 35"), ("float32 hub", "chunk 7 prompt 35")]
    assert plan(recipe, full=True, variant=True) == plan(recipe, full=False)
    full = {(cell.form.dtype, cell.form.quant) for cell in plan(recipe, full=True)}
    assert {quant for dtype, quant in full if dtype == "float32"} == {None, *recipe.quants}
    labels = {cell.label for cell in plan(recipe, full=True) if cell.form.quant == "mxfp8"}
    assert {label.split(" prompt")[0] for label in labels} == {"chunk 2048", "chunk 7", "chunk 1"}
    assert {dtype for dtype, quant in full if quant is None} == {"float32", "bfloat16", "float16"}


def planned_for(form: Form, recipe: Recipe, **fields: object) -> Planned:
    return Planned(form=form, label="planted", probe=forced(recipe, 16, 7), **fields)  # type: ignore[arg-type]


def verdict(arch: ArchRun, name: str, planned: Planned) -> ArchResult:
    """One planned cell of a recipe."""
    recipe, folders = find_recipe(name), {}
    for form in {planned.form, planned.reference_form or planned.form}:
        folders[form] = arch.build(recipe, form)[0]
    return arch.judge(name, name, planned, folders)


@pytest.mark.parametrize("kind", ["model.norm.weight", "model.layers.*.self_attn.k_norm.weight"])
def test_one_kind_of_parameter_drawn_anew_on_one_side_differs(arch: ArchRun, kind: str) -> None:
    planned = planned_for(Form(mutate=kind), find_recipe("qwen3"), reference_form=Form())
    result = verdict(arch, "qwen3", planned)
    assert result.status == DIFFERS
    assert "max |diff|" in result.why


def test_a_free_run_of_one_token_fails(arch: ArchRun) -> None:
    recipe = replace(find_recipe("qwen3"), spread={r"embed_tokens": (5.0, 0.01)})
    (greedy,) = [r for r in arch.cells("qwen3", recipe) if isinstance(r.planned.probe, GenerateProbe)]
    assert (greedy.status, greedy.why[:17]) == (FAILED, "1 distinct tokens")


def test_a_refusal_that_no_exclusion_foresees_fails(arch: ArchRun) -> None:
    refused: OracleRefused | Path = OracleRefused("mlx-lm: ValueError: never seen")
    planned = planned_for(Form(), find_recipe("qwen3"))
    result = arch.judge("qwen3", "qwen3", planned, {Form(): refused})
    assert (result.status, "never seen" in result.why) == (FAILED, True)
    known = OracleRefused(f"mlx-lm: {EXCLUSIONS[0].text}")
    assert arch.judge("olmo", "olmo", planned, {Form(): known}).status == NOT_RUN


def test_a_parameter_that_moves_nothing_fails(arch: ArchRun, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("oracles.architectures.array_changed", lambda result, before: False)
    results = list(arch.mutations("qwen3", find_recipe("qwen3")))
    assert {(result.status, result.why) for result in results} == {(FAILED, "the oracle's logits do not move")}


def test_the_results_file_counts_by_module() -> None:
    probe = Probe(token_ids=(2, 3))
    cell = Planned(form=Form(), label="chunk 7", probe=probe)
    results = [
        ArchResult("a", "m", cell, EQUAL),
        ArchResult("a-b", "m", cell, NOT_RUN, "no Metal"),
        ArchResult("a-b", "m", cell, DIFFERS, "logits"),
    ]
    document = results_document(results)
    assert set(document) == {"versions", "machine", "commit", "modules"}
    module = document["modules"]["m"]
    assert (module["equal"], module["not_run"], module["faulty"]) == (1, 1, 1)
    commit = document["commit"]
    assert module["recipes"]["a"] == {"equal": 1, "not_run": {}, "differs": {}, "commit": commit}
    assert module["recipes"]["a-b"] == {
        "equal": 0,
        "not_run": {"no Metal": ["float32 chunk 7"]},
        "differs": {"float32 chunk 7": "differs: logits"},
        "commit": commit,
    }
    document["commit"] = module["recipes"]["a"]["commit"] = "older"
    merged = results_document([ArchResult("a-b", "m", cell, EQUAL)], document)["modules"]["m"]
    assert (merged["equal"], merged["not_run"], merged["faulty"]) == (2, 0, 0)
    assert [merged["recipes"][name]["commit"] for name in ("a", "a-b")] == ["older", commit]
    with pytest.raises(errors.InvalidValue, match="machine"):
        results_document(results, document | {"machine": "another"})


def test_the_command_prints_a_line_a_cell_and_its_counts(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["qwen3"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "equal    qwen3: float32 chunk 2048 prompt 40"
    assert re.fullmatch(r"\d+ equal, 0 not run, 0 differs, 0 failed", lines[-1])
    with pytest.raises(errors.UnknownField, match="nothing-like-it"):
        chosen(["nothing-like-it"], False)
    assert main(["nothing-like-it"]) == 2
    assert "unknown 'nothing-like-it'" in capsys.readouterr().err
