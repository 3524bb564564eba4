"""BFCL: which function to call, with which arguments; or none. The Python categories of the Berkeley Function Calling
Leaderboard 4, one turn each: 3,475 items.

Tools go through the model's chat template, and the calls are read from the text by `bfcl_calls`; `bfcl_match` compares
them. Categories of irrelevance pass if nothing is called. Not run: Java and JavaScript (simple_java,
simple_javascript), live_relevance (16 items, where any call counts), several turns, memory, web search.

The score is the mean over all items; the leaderboard's is a mean of category means. cluster: the category. chance: the
share of items that want no call, which a model that never calls gets right.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from engine import errors
from evals.bfcl_calls import calls_of
from evals.bfcl_match import differences
from evals.rows import Row, fair, read_rows
from evals.sources import BFCL_EVAL
from evals.task import Answer, Generation, Item, Score, Task

CATEGORIES = (
    "simple_python", "multiple", "parallel", "parallel_multiple", "irrelevance",
    "live_simple", "live_multiple", "live_parallel", "live_parallel_multiple", "live_irrelevance",
)  # fmt: skip
WITHOUT_CALL = ("irrelevance", "live_irrelevance")
MAX_TOKENS, SHORT = 768, 256

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


def item_of(category: str, row: Row, answer: Row | None) -> Item:
    """data: messages; tools, for the template; functions, the parameters by name; expected, the accepted calls (none
    where `answer` is None). Raises `errors.CorruptFile` for rows that are not as published."""
    try:
        (messages,) = row.values["question"]
        functions = {one["name"]: one["parameters"] for one in row.values["function"]}
        tools = tuple(tool_of(one) for one in row.values["function"])
        expected = () if answer is None else tuple(answer.values["ground_truth"])
        accepted = [(name, *given.values()) for call in expected for name, given in call.items()]
        known = all(name in functions and all(isinstance(one, list) for one in given) for name, *given in accepted)
    except (KeyError, TypeError, ValueError, AttributeError, errors.InvalidValue) as error:
        raise errors.CorruptFile(row.where, f"is no question with functions and answers: {error!r}") from error
    once = len(tools) == len(functions) and len(accepted) == len(expected)
    if not known or not once or bool(expected) == (answer is None):
        raise errors.CorruptFile(row.where, "its answer is not one call of its functions each, with lists of values")
    data = {"messages": tuple(messages), "tools": tools, "functions": functions, "expected": expected}
    return Item(id=row.text("id"), cluster=category, data=data)


def read_category(category: str) -> list[Item]:
    """The items of a category in the order of its file. Raises as `evals.sources.json_lines`, and `errors.CorruptFile`
    where the answers are not those of the questions."""
    name = f"BFCL_v4_{category}.json"
    rows = read_rows(BFCL_EVAL, f"bfcl_eval/data/{name}")
    if category in WITHOUT_CALL:
        return [item_of(category, row, None) for row in rows]
    answers = read_rows(BFCL_EVAL, f"bfcl_eval/data/possible_answer/{name}")
    if [row.text("id") for row in rows] != [answer.text("id") for answer in answers]:
        raise errors.CorruptFile(name, "the answers are not those of the questions")
    return [item_of(category, row, answer) for row, answer in zip(rows, answers, strict=True)]


class Bfcl(Task):
    """See the module."""

    name = "bfcl"
    version = 1
    chance = 1124 / 3475
    margin = 2.0
    chat = True
    source = BFCL_EVAL
    clustered_by = "category"
    max_tokens = MAX_TOKENS

    def items(self) -> Sequence[Item]:
        return fair((item for category in CATEGORIES for item in read_category(category)), "BFCL_v4")

    def question(self, item: Item) -> Generation:
        return Generation(prompt=item.data["messages"], max_tokens=self.max_tokens, tools=item.data["tools"])

    def score(self, item: Item, answer: Answer) -> Score:
        calls = calls_of(answer.text)
        why = differences(calls, item.data["expected"], item.data["functions"])
        extracted = json.dumps([{"name": call.name, "arguments": call.arguments} for call in calls])
        return Score(value=float(not why), extracted=extracted, why=why)


class Bfcl256(Bfcl):
    """The same questions, answers cut at 256 tokens: a task of its own for slow machines."""

    name = "bfcl_256"
    max_tokens = SHORT
