"""The function calls in what a model said. Nothing is ever evaluated.

Read in this order; the first form that is there decides:
1. <tool_call> tags, JSON or Python syntax inside; a last tag may be open. A tag whose inside cannot be read is an
   attempt: a call without a name, which no expected call equals.
2. JSON objects or lists of them anywhere in the text: {"name": ..., "arguments": {...}}. "parameters" in place of
   "arguments", arguments as a JSON text, and {"function": {...}} around it are read too.
3. An answer that is nothing but Python calls, `f(a=1)`, `[f(a=1), m.g(b="x")]` or one a line; a markdown fence around
   it is allowed.
What stands before "</think>" is left out. Other markups (XML parameters, for instance) are not read.
"""

from __future__ import annotations

import ast
import json
import re
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

LONGEST = 20_000  # characters; of a longer answer only these are read
DEEPEST = 40  # lists and dicts in one another; a call of more is an attempt
MOST_STARTS = 200  # braces and brackets that begin no JSON; after as many no call is looked for
_INTEGER_BITS = 1024  # an integer that fits no float is an attempt as well
POSITIONAL = "*"  # the name of arguments that a Python call gives without one

_TAG = re.compile(r"<tool_call>(.*?)(?:</tool_call>|$)", re.DOTALL)
_FENCE = re.compile(r"```[\w-]*\s(.*?)```", re.DOTALL)
_NAMED = {"true": True, "false": False, "null": None, "none": None}
_ERRORS = (ValueError, SyntaxError, RecursionError, MemoryError)


@dataclass(frozen=True, kw_only=True)
class Call:
    """One call. name: "" for an attempt that cannot be read; arguments: JSON values by parameter."""

    name: str
    arguments: dict[str, Any]


UNREADABLE = Call(name="", arguments={})


def calls_of(text: str) -> tuple[Call, ...]:
    """The calls in their order; none for an answer in plain words. Never raises."""
    text = text[:LONGEST].rpartition("</think>")[2].strip()
    if tagged := [found[1].strip() for found in _TAG.finditer(text)]:
        return tuple(call for inside in tagged for call in _inside(inside))
    if found := tuple(_json_calls(text)):
        return found
    fenced = _FENCE.fullmatch(text)
    return _python_calls(fenced[1] if fenced else text)


def _inside(text: str) -> tuple[Call, ...]:
    return tuple(_json_calls(text)) or _python_calls(text) or (UNREADABLE,)


def _json_calls(text: str) -> Iterator[Call]:
    """Calls of the JSON values that start at a brace or bracket, left to right, without those inside of another one."""
    decoder, at, failures = json.JSONDecoder(), 0, 0
    for match in re.finditer(r"[\[{]", text):
        if match.start() < at:
            continue
        try:
            value, end = decoder.raw_decode(text, match.start())
        except RecursionError:
            return
        except ValueError:
            failures += 1
            if failures == MOST_STARTS:
                return
            continue
        found = [_json_call(one) for one in (value if isinstance(value, list) else [value])]
        calls = [call for call in found if call is not None]
        if calls:
            at = end
            yield from calls


def _json_call(value: object) -> Call | None:
    """A call, or None for any other value; a tool's definition ("description") is none."""
    if isinstance(value, dict) and isinstance(value.get("function"), dict):
        value = value["function"]
    if not isinstance(value, dict) or not isinstance(value.get("name"), str) or "description" in value:
        return None
    arguments = value.get("arguments", value.get("parameters"))
    if isinstance(arguments, str):
        try:
            arguments = json.loads(arguments)
        except _ERRORS:
            return None
    return _call(value["name"], arguments) if isinstance(arguments, dict) else None


def _call(name: str, arguments: dict[str, Any]) -> Call:
    return Call(name=name, arguments=arguments) if _bounded(arguments, DEEPEST) else UNREADABLE


def _bounded(value: Any, levels: int) -> bool:
    """Whether a value can be written down: not too deep, no integer too long."""
    if isinstance(value, list | dict):
        inner = value.values() if isinstance(value, dict) else value
        return levels > 0 and all(_bounded(one, levels - 1) for one in inner)
    return not isinstance(value, int) or value.bit_length() <= _INTEGER_BITS


def _python_calls(text: str) -> tuple[Call, ...]:
    """Calls of a text that is nothing else, else none."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of odd escapes in a model's strings
            body = ast.parse(text.strip()).body
        nodes: list[ast.expr] = []
        for statement in body:
            if not isinstance(statement, ast.Expr):
                return ()
            value = statement.value
            nodes += value.elts if isinstance(value, ast.List | ast.Tuple) else [value]
        return tuple(_python_call(node) for node in nodes)
    except _ERRORS:
        return ()


def _python_call(node: ast.expr) -> Call:
    """Raises ValueError for what is no call of a plain or dotted name."""
    if not isinstance(node, ast.Call) or not _is_name(node.func):
        raise ValueError("not a call")
    arguments = {keyword.arg or "**": _value(keyword.value) for keyword in node.keywords}
    if len(arguments) < len(node.keywords):
        return UNREADABLE  # a parameter twice
    if node.args:
        arguments[POSITIONAL] = [_value(value) for value in node.args]
    return _call(ast.unparse(node.func), arguments)


def _is_name(node: ast.expr) -> bool:
    return isinstance(node, ast.Name) or (isinstance(node, ast.Attribute) and _is_name(node.value))


def _value(node: ast.expr) -> Any:
    """A literal as a JSON value, tuples as lists; any other expression as its text, unevaluated."""
    match node:
        case ast.Constant(value=str() | int() | float() | None):
            return node.value
        case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=int() | float() as number)):
            return -number
        case ast.List(elts=elements) | ast.Tuple(elts=elements):
            return [_value(element) for element in elements]
        case ast.Dict(keys=keys, values=values) if all(isinstance(key, ast.Constant) for key in keys):
            return {
                str(key.value): _value(value)
                for key, value in zip(keys, values, strict=True)
                if isinstance(key, ast.Constant)
            }
        case ast.Name(id=name) if name in _NAMED:
            return _NAMED[name]
        case _:
            return ast.unparse(node)
