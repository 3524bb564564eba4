"""The cells of a recipe and their verdicts; `python -m oracles.arch` is the command.

Each recipe is built by mlx-lm's own classes, in every form, and both stacks run the same probes: every value must be
equal. W is a window, where there is one.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import TracebackType
from typing import Any

from engine import errors
from oracles.client import Worker
from oracles.contract import GenerateProbe, OracleRefused, Probe, StackConfig
from oracles.exclusions import find_exclusion, find_unmoved
from oracles.matrix import free_run, random_ids
from oracles.modules import module_of, modules
from oracles.parity import DIFFERS, EQUAL, FAILED, NOT_RUN, Cell, CellResult, Pair
from oracles.recipe import Form, Recipe, find_recipe, form_folder
from oracles.tiny import tiny_root

CHUNKS = (2048, 7, 1)
LOADED_CHUNK = 7
# A prompt fed one token at a time where a longer one shows nothing more: past a window of 8, and few.
SINGLES = 12
PROMPT, STEPS, APPEND, LAST_STEPS, FREE_STEPS = 40, 8, 5, 2, 16
# A tiny model whose free run has fewer distinct tokens than this could be equal by accident.
DISTINCT = 3
VOCABULARY_KEYS = ("vocab_size", "num_vocab")


@dataclass(frozen=True, kw_only=True)
class Planned:
    """One cell to come. reference_form: what the oracle loads, where it is another form. same_as: a form from which
    the oracle must read the very same parameters."""

    form: Form
    label: str
    probe: Probe | GenerateProbe
    compile: bool = False
    reference_form: Form | None = None
    same_as: Form | None = None

    def __str__(self) -> str:
        fused = " compiled" if self.compile else ""
        return f"{self.form} {self.label}{fused}"


@dataclass(frozen=True)
class ArchResult:
    """A cell's verdict. status: one of oracles.parity's words; why: a line on it."""

    recipe: str
    module: str
    planned: Planned
    status: str
    why: str = ""
    result: CellResult | None = None

    @property
    def bad(self) -> bool:
        return self.status not in (EQUAL, NOT_RUN)

    def line(self) -> str:
        """One line for a reader: verdict, recipe, cell, and where the two part."""
        return f"{self.status:8} {self.recipe}: {self.planned}" + (f"  {self.why}" if self.why else "")

    def as_dict(self) -> dict[str, Any]:
        """JSON form."""
        return {
            "recipe": self.recipe,
            "module": self.module,
            "cell": str(self.planned),
            "status": self.status,
            "why": self.why,
        }


def prompts(recipe: Recipe) -> tuple[int, ...]:
    """Prompt lengths, the longest last: shorter than W, equal to W, several times W; without a window one of 40."""
    if recipe.window is None:
        return (PROMPT,)
    return (max(2, recipe.window - 3), recipe.window, 4 * recipe.window + 3)


def sizes(prompt: int, chunk: int) -> tuple[int, ...]:
    """The forwards of a forced run: the prompt in chunks, single steps, several tokens at once, single steps."""
    chunks = [min(chunk, prompt - start) for start in range(0, prompt, chunk)]
    return (*chunks, *[1] * STEPS, APPEND, *[1] * LAST_STEPS)


def forced(recipe: Recipe, prompt: int, chunk: int) -> Probe:
    """The forced run of a recipe at one prompt length and chunk."""
    lengths = sizes(prompt, chunk)
    return Probe(token_ids=random_ids(vocabulary(recipe.config), sum(lengths)), sizes=lengths)


def vocabulary(config: Mapping[str, Any]) -> int:
    """The smallest size of a vocabulary anywhere in the config; one without raises `errors.InvalidValue`."""
    found = _vocabularies(config)
    if not found:
        raise errors.InvalidValue("config", sorted(config), f"one with {' or '.join(VOCABULARY_KEYS)}")
    return min(found)


def _vocabularies(config: Mapping[str, Any]) -> list[int]:
    own = [int(config[key]) for key in VOCABULARY_KEYS if key in config]
    return own + [size for value in config.values() if isinstance(value, Mapping) for size in _vocabularies(value)]


def plan(recipe: Recipe, *, full: bool, compiled: bool = False, variant: bool = False) -> list[Planned]:
    """The cells of a recipe, without mutations. compiled: add cells with fusion on.

    variant: of a module that another recipe shows in every form. In full it gets that recipe's quick cells, else one
    forced run of each layout.
    """
    brief, full = variant and not full, full and not variant
    lengths = prompts(recipe)
    longest = lengths[-1]
    ids = random_ids(vocabulary(recipe.config), longest)
    greedy = free_run(ids, FREE_STEPS)

    def cell(form: Form, prompt: int, chunk: int, **fields: Any) -> Planned:
        label = f"chunk {chunk} prompt {prompt}"
        return Planned(form=form, label=label, probe=forced(recipe, prompt, chunk), **fields)

    plain = Form()
    singles = lengths if full or recipe.window else (SINGLES,)
    if brief:
        cells = [cell(plain, longest, 7)]
    else:
        cells = [cell(plain, prompt, chunk) for chunk in CHUNKS for prompt in (singles if chunk == 1 else lengths)]
        cells.append(Planned(form=plain, label="greedy", probe=greedy))
    if recipe.hub is not None:
        cells.append(cell(Form(layout="hub"), longest, 7, same_as=plain))
    if brief:
        return cells
    packed = recipe.quants if full else recipe.quants[:1]
    halves = ("bfloat16", "float16") if full else ("bfloat16",)
    for dtype in halves:
        half = Form(dtype=dtype)
        cells += [cell(half, longest, chunk) for chunk in (CHUNKS if full else (7,))]
        if full:
            cells.append(Planned(form=half, label="greedy", probe=greedy))
            cells += [cell(Form(dtype=dtype, quant=quant), longest, 7) for quant in packed[:1]]
    for quant in packed:
        cells.append(cell(Form(quant=quant), longest, 7))
        if full:
            cells += [cell(Form(quant=quant), longest, 2048), cell(Form(quant=quant), min(longest, SINGLES), 1)]
    if full and packed:
        cells.append(Planned(form=Form(quant=packed[0]), label="greedy", probe=greedy))
    if full or compiled:
        cells.append(cell(plain, longest, 7, compile=True))
        cells.append(Planned(form=plain, label="greedy", probe=greedy, compile=True))
    return cells


class ArchRun:
    """Builds recipes and runs their cells: an mlx-lm process that builds, and both stacks' workers."""

    def __init__(self, *, root: Path | None = None, blas: str = "bundled") -> None:
        self.root = root or tiny_root()
        self._builder = Worker(StackConfig(stack="mlx-lm", model="", blas=blas), wait=False)
        self._pair = Pair(blas)

    def __enter__(self) -> ArchRun:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._pair.__exit__()
        self._builder.close()

    def cells(
        self, name: str, recipe: Recipe, *, full: bool = False, compiled: bool = False, bisect: bool = False
    ) -> Iterator[ArchResult]:
        """Every cell of one recipe, as it is decided."""
        module = ""
        folders: dict[Form, Path | OracleRefused] = {}
        for planned in plan(recipe, full=full, compiled=compiled, variant=name not in modules()):
            for form in filter(None, (planned.same_as, planned.form)):
                if form not in folders:
                    folders[form], built = self.build(recipe, form)
                    module = module or built
            verdict = self.judge(name, module, planned, folders, bisect)
            if verdict.status == EQUAL and planned.same_as is not None:
                verdict = self._same_parameters(verdict, folders[planned.form], folders[planned.same_as])
            yield verdict

    def mutations(self, name: str, recipe: Recipe) -> Iterator[ArchResult]:
        """Each kind of parameter drawn anew, alone: the oracle's logits must move, and ours equally. Of a variant, the
        kinds that its module's first recipe lacks."""
        plain = Form()
        probe = forced(recipe, prompts(recipe)[-1], LOADED_CHUNK)
        before = Planned(form=plain, label="before mutations", probe=probe)
        try:
            answer = self._builder.build(recipe, plain, form_folder(recipe, plain, self.root))
        except OracleRefused as error:
            yield self._refused(name, "", before, error)
            return
        module, folders = module_of(recipe.config), {plain: form_folder(recipe, plain, self.root)}
        base = self.judge(name, module, before, folders)
        if base.result is None or base.status not in (EQUAL, DIFFERS):
            yield base
            return
        for kind in self._kinds_of(name, recipe, answer["kinds"]):
            form = Form(mutate=kind)
            planned = replace(before, form=form, label=f"mutate {kind}")
            folder = form_folder(recipe, form, self.root)
            self._builder.build(recipe, form, folder)
            result = self.judge(name, module, planned, {form: folder})
            shutil.rmtree(folder)
            yield _moved(result, kind, base.result.reference_sha256)

    def _kinds_of(self, name: str, recipe: Recipe, kinds: Sequence[str]) -> list[str]:
        """The kinds of parameter that this recipe is to show."""
        if name in modules():
            return list(kinds)
        first, plain = find_recipe(module_of(recipe.config)), Form()
        shown = self._builder.build(first, plain, form_folder(first, plain, self.root))["kinds"]
        return [kind for kind in kinds if kind not in shown]

    def build(self, recipe: Recipe, form: Form) -> tuple[Path | OracleRefused, str]:
        """The folder of a form, or the oracle's refusal to build it, and the name of the module."""
        folder = form_folder(recipe, form, self.root)
        try:
            self._builder.build(recipe, form, folder)
        except OracleRefused as error:
            return error, ""
        return folder, module_of(recipe.config)

    def judge(
        self,
        name: str,
        module: str,
        planned: Planned,
        folders: Mapping[Form, Path | OracleRefused],
        bisect: bool = False,
    ) -> ArchResult:
        """The verdict on one cell; folders: where each form is, or the oracle's refusal to build it."""
        model, reference = folders[planned.form], folders[planned.reference_form or planned.form]
        for made in (model, reference):
            if isinstance(made, OracleRefused):
                return self._refused(name, module, planned, made)
        cell = Cell(
            name=name,
            dtype=str(planned.form),
            model=str(model),
            reference_model=str(reference),
            probe=planned.probe,
            steps=STEPS,
            chunk=LOADED_CHUNK,
            compile=planned.compile,
        )
        result = self._pair.run(cell, bisect=bisect)
        if result.status == NOT_RUN:
            return self._refused(name, module, planned, OracleRefused(result.why))
        status, why = result.status, _why(result)
        if status == EQUAL and isinstance(planned.probe, GenerateProbe) and result.distinct_tokens < DISTINCT:
            status, why = (
                FAILED,
                f"{result.distinct_tokens} distinct tokens in the free run: draw the embedding wider (Recipe.spread)",
            )
        return ArchResult(name, module, planned, status, why, result)

    def _same_parameters(self, verdict: ArchResult, *folders: Path | OracleRefused) -> ArchResult:
        """Whether the oracle holds the very same parameters from both layouts, so that `hub` names what it reads."""
        held = []
        for made in folders:
            self._builder.load(replace(self._builder.config, model=str(made)))
            held.append(self._builder.parameters())
        ours, theirs = held
        unequal = sorted(name for name in {*ours, *theirs} if ours.get(name) != theirs.get(name))
        if not unequal:
            return verdict
        return replace(verdict, status=DIFFERS, why=f"the oracle reads other parameters: {', '.join(unequal[:6])}")

    def _refused(self, name: str, module: str, planned: Planned, error: OracleRefused) -> ArchResult:
        """The oracle's refusal: foreseen by an exclusion, or a failure."""
        text = " ".join(str(error).split())
        if find_exclusion(name, planned.reference_form or planned.form, text) is None:
            return ArchResult(name, module, planned, FAILED, f"no exclusion foresees the oracle's refusal: {text}")
        return ArchResult(name, module, planned, NOT_RUN, text)


def _moved(result: ArchResult, kind: str, before: str) -> ArchResult:
    if result.status != EQUAL or result.result is None:
        return result
    moved, listed = array_changed(result.result, before), find_unmoved(result.recipe, kind)
    if moved and listed is None:
        return result
    if moved:
        return replace(result, status=FAILED, why="listed as unread by the oracle, but its logits move")
    if listed is None:
        return replace(result, status=FAILED, why="the oracle's logits do not move")
    return replace(result, status=NOT_RUN, why=f"unread by the oracle: {listed.reason}")


def array_changed(result: CellResult, before: str) -> bool:
    """Whether the reference answered anything else than before."""
    return result.reference_sha256 != before


def _why(result: CellResult) -> str:
    parts = [result.why]
    for label, difference in (("", result.difference), ("first layer: ", result.bisect)):
        if difference is not None:
            gap = "" if difference.max_abs_diff is None else f", max |diff| {difference.max_abs_diff:.3g}"
            at = "" if difference.position is None else f" from position {difference.position}"
            parts.append(f"{label}{difference.tensor} {difference.why}{at}{gap}")
    return "; ".join(part for part in parts if part)
