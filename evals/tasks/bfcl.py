"""BFCL: which function to call, with which arguments; or none. The Python categories of the Berkeley Function Calling
Leaderboard 4, one turn each: 3,475 items.

Tools go through the model's chat template, and the calls are read from the text by `bfcl_calls`; `bfcl_match` compares
them. Categories of irrelevance pass if nothing is called. Not run: Java and JavaScript (simple_java,
simple_javascript), live_relevance (16 items, where any call counts), several turns, memory, web search.

The score is the mean over all items; the leaderboard's is a mean of category means. cluster: the category. chance: the
share of items that want no call, which a model that never calls gets right.
"""

from __future__ import annotations

import functools
import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Any

from engine import errors
from evals.bfcl_calls import calls_of
from evals.bfcl_match import differences
from evals.sources import BFCL_EVAL, json_lines
from evals.task import Answer, Generation, Item, Score, Task

CATEGORIES = (
    "simple_python", "multiple", "parallel", "parallel_multiple", "irrelevance",
    "live_simple", "live_multiple", "live_parallel", "live_parallel_multiple", "live_irrelevance",
)  # fmt: skip
WITHOUT_CALL = ("irrelevance", "live_irrelevance")
MAX_TOKENS = 768

_JSON_TYPES = {
    "dict": "object", "float": "number", "tuple": "array", "any": "string",
    "string": "string", "integer": "integer", "boolean": "boolean", "array": "array",
}  # fmt: skip


def json_schema(schema: Mapping[str, Any]) -> dict[str, Any]:
    """A parameter's description with JSON Schema's type names, nested ones too. Raises `errors.InvalidValue` for a type
    that is not known. "any" becomes "string", as published; "optional" is no word of JSON Schema and is left out."""
    kind = schema.get("type")
    if kind not in _JSON_TYPES:
        raise errors.InvalidValue("type", kind, _JSON_TYPES)
    out = {key: value for key, value in schema.items() if key != "optional"} | {"type": _JSON_TYPES[kind]}
    if "properties" in schema:
        out["properties"] = {name: json_schema(inner) for name, inner in schema["properties"].items()}
    if "items" in schema:
        out["items"] = json_schema(schema["items"])
    return out


def tool_of(function: Mapping[str, Any]) -> dict[str, Any]:
    """A function's definition as chat templates want it."""
    parameters = json_schema(function["parameters"])
    described = {"name": function["name"], "description": function["description"], "parameters": parameters}
    return {"type": "function", "function": described}


def item_of(category: str, row: Mapping[str, Any], expected: Sequence[Mapping[str, Any]]) -> Item:
    """One row of the data with its expected calls. Raises `errors.CorruptFile` for a row that is not as published."""
    try:
        (messages,) = row["question"]
        functions = {function["name"]: function["parameters"] for function in row["function"]}
        tools = tuple(tool_of(function) for function in row["function"])
        for call in expected:
            if len(call) != 1 or not call.keys() <= functions.keys():
                raise errors.InvalidValue("ground_truth", list(call), f"one of {sorted(functions)}")
        if bool(expected) == (category in WITHOUT_CALL):
            raise errors.InvalidValue("ground_truth", len(expected), "calls, unless the category wants none")
        data = {"messages": tuple(messages), "tools": tools, "functions": functions, "expected": tuple(expected)}
        return Item(id=row["id"], cluster=category, data=data)
    except (KeyError, TypeError, ValueError, AttributeError, errors.FrontierError) as error:
        raise errors.CorruptFile(f"BFCL_v4_{category}", f"row {row.get('id')!r}: {error!r}") from error


def read_category(category: str) -> list[Item]:
    """The items of a category in the order of its file."""
    name = f"BFCL_v4_{category}.json"
    rows = json_lines(BFCL_EVAL, f"bfcl_eval/data/{name}")
    if category in WITHOUT_CALL:
        return [item_of(category, row, ()) for row in rows]
    answers = json_lines(BFCL_EVAL, f"bfcl_eval/data/possible_answer/{name}")
    if [row.get("id") for row in rows] != [answer.get("id") for answer in answers]:
        raise errors.CorruptFile(name, "the answers are not those of the questions")
    return [item_of(category, row, found.get("ground_truth", ())) for row, found in zip(rows, answers, strict=True)]


class Bfcl(Task):
    """See the module."""

    name = "bfcl"
    version = 1
    chance = 1124 / 3475
    margin = 2.0
    chat = True
    source = BFCL_EVAL

    @functools.cached_property
    def _items(self) -> tuple[Item, ...]:
        items = [item for category in CATEGORIES for item in read_category(category)]
        return tuple(sorted(items, key=lambda item: hashlib.sha256(item.id.encode()).digest()))

    def items(self) -> Sequence[Item]:
        """By the sha256 of their names, so that any first n hold the categories in proportion."""
        return self._items

    def question(self, item: Item) -> Generation:
        """The messages as they are, with the functions as tools."""
        return Generation(prompt=item.data["messages"], max_tokens=MAX_TOKENS, tools=item.data["tools"])

    def score(self, item: Item, answer: Answer) -> Score:
        """1 if the calls are the expected ones in any order (or none where none is wanted), else 0."""
        calls = calls_of(answer.text)
        why = differences(calls, item.data["expected"], item.data["functions"])
        extracted = json.dumps([{"name": call.name, "arguments": call.arguments} for call in calls])
        return Score(value=float(not why), extracted=extracted, why=why)
