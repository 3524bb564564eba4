"""What `frontier bench device` measures, and in which order: the cells that say most come first, since time on a
device comes in short leases. Pure.

A turn is one launch: a pair of new processes of one model, in which two quads of each of its cells are taken. Cells of
one model share it, because starting is most of its time. Every turn is done once; a later call goes on with the rest.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from engine import errors

Part = Literal["ab", "aa"]
MODELS = ("0.6b", "8b", "135m")
PACKINGS = ("4bit", "bf16")
PROMPTS = (128, 4096)
ROWS = (1, 8, 32)
# What these cells give is judged; all others are screens.
FULL_MODELS, FULL_PACKING, FULL_ROWS = ("0.6b", "8b"), "4bit", (1, 8)
AA_LAUNCHES = 4
LOOKS = ((8, 0.005), (16, 0.0175))  # launches, and the level of the test there
# Levers of the engine that are tried beside its defaults: the first keeps bits, the second does not.
LEAN = (("ops", "lean"),)
FAST = (("batch_mode", "fast"),)
TOKENS = {1: 128, 8: 64, 32: 48}
SHORT_STEPS = 2  # so many times more tokens where a step of one row is short


@dataclass(frozen=True, kw_only=True)
class Group:
    """Cells that one pair of processes can run. levers: of the engine."""

    model: str
    packing: str
    levers: tuple[tuple[str, str], ...] = ()

    @property
    def name(self) -> str:
        own = " ".join(f"{name}={value}" for name, value in self.levers)
        return " ".join(filter(None, (self.model, self.packing, own)))


@dataclass(frozen=True, kw_only=True)
class Cell:
    """`prompt`: tokens of each row; `rows`: that arrive together."""

    group: Group
    prompt: int
    rows: int

    @property
    def name(self) -> str:
        return f"{self.group.name}, {self.prompt} x {self.rows}"

    @property
    def tokens(self) -> int:
        """That each row makes."""
        tokens = TOKENS.get(self.rows, self.rows + 8)
        return tokens * SHORT_STEPS if self.rows == 1 and self.group.model in ("0.6b", "135m") else tokens

    @property
    def full(self) -> bool:
        """Whether the whole protocol is planned for it, so that it ends in a verdict."""
        g = self.group
        first = self.prompt == PROMPTS[0] and not g.levers
        return first and g.model in FULL_MODELS and g.packing == FULL_PACKING and self.rows in FULL_ROWS


@dataclass(frozen=True, kw_only=True)
class Turn:
    """`launch`: its number among those of this part; `host`: whether a step's time is taken apart too."""

    group: Group
    part: Part
    launch: int
    cells: tuple[Cell, ...]
    host: bool = False

    @property
    def name(self) -> str:
        shown = ", ".join(f"{cell.prompt} x {cell.rows}" for cell in self.cells)
        return f"{self.group.name}: {'A/A ' if self.part == 'aa' else ''}launch {self.launch + 1}, {shown}"


def make_turns(
    models: Sequence[str] = MODELS,
    packings: Sequence[str] = PACKINGS,
    prompts: Sequence[int] = PROMPTS,
    rows: Sequence[int] = ROWS,
    *,
    levers: bool = True,
) -> list[Turn]:
    """All turns, the most telling first. Errors: `InvalidValue` for a length or a number of rows below 1."""
    for flag, values, least in (("--prompts", prompts, 2), ("--rows", rows, 1)):
        for value in values:
            if value < least:
                raise errors.InvalidValue(flag, value, f"integers >= {least}")
    groups = [Group(model=model, packing=packing) for packing in packings for model in models]
    first, *longer = prompts
    low, wide = [n for n in rows if n < 32], [n for n in rows if n >= 32]
    turns = [_screen(group, [(first, n) for n in low], host=True) for group in groups]
    if levers:
        turns += _lever_turns(groups, first, rows)
    turns += [_screen(group, [(p, 1) for p in longer] + [(first, n) for n in wide]) for group in groups]
    full = [group for group in groups if any(cell.full for cell in _cells(group, first, rows))]
    turns += _full(full, first, rows, "ab", 1, LOOKS[0][0]) + _full(full, first, rows, "aa", 0, AA_LAUNCHES)
    turns += [_screen(group, [(p, n)]) for p in longer for n in rows if n > 1 for group in groups]
    turns += _full(full, first, rows, "ab", LOOKS[0][0], LOOKS[1][0])
    return [turn for turn in turns if turn.cells]


def _cells(group: Group, prompt: int, rows: Sequence[int]) -> tuple[Cell, ...]:
    return tuple(Cell(group=group, prompt=prompt, rows=n) for n in rows)


def _screen(group: Group, sizes: Sequence[tuple[int, int]], *, host: bool = False) -> Turn:
    cells = tuple(Cell(group=group, prompt=prompt, rows=n) for prompt, n in sizes)
    return Turn(group=group, part="ab", launch=0, cells=cells, host=host)


def _lever_turns(groups: Sequence[Group], prompt: int, rows: Sequence[int]) -> list[Turn]:
    """Packed models with the engine's levers on: one row by traces, several as one product."""
    found = []
    for group in (g for g in groups if g.packing.endswith("4bit")):
        for levers, fits in ((LEAN, [n for n in rows if n == 1]), (FAST, [n for n in rows if n > 1])):
            own = Group(model=group.model, packing=group.packing, levers=levers)
            found.append(_screen(own, [(prompt, n) for n in fits], host=levers == LEAN))
    return found


def _full(groups: Sequence[Group], prompt: int, rows: Sequence[int], part: Part, begin: int, end: int) -> list[Turn]:
    return [
        Turn(
            group=group,
            part=part,
            launch=launch,
            cells=tuple(cell for cell in _cells(group, prompt, rows) if cell.full),
        )
        for launch in range(begin, end)
        for group in groups
    ]
