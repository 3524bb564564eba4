"""Function calls, right and wrong ones, on functions of our own written in BFCL's format.

`call_cases()` builds them: each spec's right call from the first accepted values, then one change at a time. `changed`
does the same to the calls of any item of the real data.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

Arguments = dict[str, Any]
Accepted = dict[str, dict[str, list[Any]]]


def function(name: str, properties: dict[str, Any], required: list[str]) -> dict[str, Any]:
    described = {key: {"description": "", **value} for key, value in properties.items()}
    parameters = {"type": "dict", "properties": described, "required": required}
    return {"name": name, "description": "What it does.", "parameters": parameters}


STRING, INTEGER, FLOAT, BOOLEAN = ({"type": kind} for kind in ("string", "integer", "float", "boolean"))
BOOK = function("table.book", {"place": STRING, "guests": INTEGER, "outside": BOOLEAN}, ["place", "guests"])
HEAT = function("heat_oven", {"degrees": FLOAT, "minutes": INTEGER, "unit": STRING}, ["degrees"])
ROUTE = function(
    "route",
    {"stops": {"type": "array", "items": STRING}, "start": {"type": "tuple", "items": FLOAT}, "label": {"type": "any"}},
    ["stops"],
)
ORDER = function(
    "order",
    {
        "lines": {"type": "array", "items": {"type": "dict", "properties": {"item": STRING, "count": INTEGER}}},
        "address": {"type": "dict", "properties": {"street": STRING, "number": INTEGER, "floor": INTEGER}},
        "note": STRING,
    },
    ["lines"],
)
GRID = function(
    "grid", {"cells": {"type": "array", "items": {"type": "array", "items": INTEGER}}, "seed": INTEGER}, ["cells"]
)

# name -> (functions, accepted calls)
SPECS: dict[str, tuple[list[dict[str, Any]], list[Accepted]]] = {
    "simple": (
        [BOOK],
        [{"table.book": {"place": ["Blue Café, Old-Town", "Blue Café"], "guests": [4], "outside": [True, ""]}}],
    ),
    "float": ([HEAT], [{"heat_oven": {"degrees": [180.0, 356], "minutes": ["", 25], "unit": ["celsius", "C", ""]}}]),
    "lists": ([ROUTE], [{"route": {"stops": [["North Gate", "Mill"]], "start": [[1.5, -2.0]], "label": ["trip", ""]}}]),
    "nested": (
        [ORDER],
        [
            {
                "order": {
                    "lines": [[{"item": ["pen", "a pen"], "count": [2]}, {"item": ["ink"], "count": [1, ""]}]],
                    "address": [{"street": ["Elm St."], "number": [7], "floor": ["", 2]}],
                    "note": ["", None],
                }
            }
        ],
    ),
    "grid": ([GRID, BOOK], [{"grid": {"cells": [[[1, 2], [3, 4]]], "seed": ["", 1]}}]),
    "parallel": (
        [BOOK, HEAT],
        [
            {"table.book": {"place": ["Mill", "The Mill"], "guests": [2], "outside": [""]}},
            {"table.book": {"place": ["The Mill"], "guests": [2, 3], "outside": [""]}},
            {"heat_oven": {"degrees": [90], "minutes": [""], "unit": [""]}},
        ],
    ),
    "loose_types": ([BOOK], [{"table.book": {"place": [3], "guests": ["dontcare", ""], "outside": [None, False]}}]),
}  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class CallCase:
    """calls, accepted: as {name: {parameter: ...}}."""

    name: str
    functions: list[dict[str, Any]]
    calls: list[dict[str, Arguments]]
    accepted: list[Accepted]
    category: str


def first_value(accepted: Any) -> Any:
    """A value as a model would give it: of a dict of accepted values the first of each, elsewhere as it is."""
    if isinstance(accepted, dict):
        return {
            key: first_value(next(value for value in options if value != "")) if isinstance(options, list) else options
            for key, options in accepted.items()
            if not isinstance(options, list) or any(value != "" for value in options)
        }
    if isinstance(accepted, list):
        return [first_value(value) for value in accepted]
    return accepted


def first_calls(functions: list[dict[str, Any]], accepted: list[Accepted]) -> list[dict[str, Arguments]]:
    """The calls of the first accepted values. Left out: what may only be left out, and what the function does not know;
    a required parameter that accepts "" alone is given as ""."""
    known = {one["name"]: one["parameters"] for one in functions}
    calls = []
    for call in accepted:
        ((name, parameters),) = call.items()
        given = first_value({key: options for key, options in parameters.items() if key in known[name]["properties"]})
        empty = [key for key in known[name].get("required", []) if parameters.get(key) == [""]]
        calls.append({name: {**given, **dict.fromkeys(empty, "")}})
    return calls


def _other(value: Any) -> Iterator[tuple[str, Any]]:
    """Values near this one; "same:" before a change that the rules do not see."""
    if isinstance(value, bool):
        yield from (("negated", not value), ("as text", str(value)), ("as integer", int(value)))
    elif isinstance(value, int | float):
        yield from (("next", value + 1), ("as text", str(value)), ("as float", float(value)), ("as list", [value]))
        if value == int(value):
            yield "as integer", int(value)
    elif isinstance(value, str):
        yield from (("same: shouted", value.upper()), ("same: spaced", f" {value}-"), ("longer", value + "x"))
        yield from (("empty", ""), ("as list", [value]), ("null", None))
    elif isinstance(value, list):
        yield from (("reversed", value[::-1]), ("shorter", value[:-1]), ("longer", value + value[-1:]), ("empty", []))
        if value:
            for name, inner in _other(value[0]):
                yield f"first {name}", [inner, *value[1:]]
    elif isinstance(value, dict):
        yield "more", {**value, "extra": 1}
        for key in value:
            yield f"without {key}", {k: v for k, v in value.items() if k != key}
            for name, inner in _other(value[key]):
                yield f"{key} {name}", {**value, key: inner}


def changed(calls: list[dict[str, Arguments]]) -> Iterator[tuple[str, list[dict[str, Arguments]]]]:
    """Named variations of right calls: as they are, and with one change each."""
    yield "right", calls
    yield "none", []
    yield "one more", [*calls, copy.deepcopy(calls[0])]
    yield "backwards", calls[::-1]
    yield "name", [{name + "_x": arguments for name, arguments in calls[0].items()}, *calls[1:]]
    ((name, arguments),) = calls[0].items()
    yield "extra parameter", [{name: {**arguments, "extra_parameter": 1}}, *calls[1:]]
    for parameter, value in arguments.items():
        left = {key: inner for key, inner in arguments.items() if key != parameter}
        yield f"without {parameter}", [{name: left}, *calls[1:]]
        for change, inner in _other(value):
            yield f"{parameter} {change}", [{name: {**arguments, parameter: inner}}, *calls[1:]]


def call_cases() -> Iterator[CallCase]:
    """All of them; the same at every call."""
    for spec, (functions, accepted) in SPECS.items():
        category = "parallel" if len(accepted) > 1 else "multiple" if len(functions) > 1 else "simple"
        for change, calls in changed(first_calls(functions, accepted)):
            name = f"{spec}: {change}"
            yield CallCase(name=name, functions=functions, calls=calls, accepted=accepted, category=category)
