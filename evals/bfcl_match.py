"""Whether calls are the expected ones, as the Berkeley Function Calling Leaderboard compares syntax trees.

An expected call is {name: {parameter: [accepted value, ...]}}; "" among the accepted values means that the parameter
may be left out. Rules: the name letter by letter; every required parameter, no unknown one; a value equals one of the
accepted: strings without regard to case, blanks and the characters , . / - _ * ^, and with either quotation mark;
numbers and booleans by value and type, where an integer may stand for a float, and a float for an accepted integer if
the parameter is a float; lists in order; dicts by key, each of
its values again one of several accepted. Several calls in any order.

Held against the checker of bfcl-eval 2026.3.23 on 62,508 right and changed calls of its 2,351 items that want a call
(tests/evals/record_oracles.py): 102 differ, of these kinds:

| the call has | here | there | calls | reason |
| --- | --- | --- | --- | --- |
| a float for an integer, in a dict or nested list | no | yes | 46 | types hold at every depth, not only at the top |
| 0 or 1 for a boolean in a dict | no | yes | 14 | the same |
| an empty list where the parameter may be left out | no | yes | 5 | "" says "left out", not "empty" |
| other capitals or blanks in a dict's list, or in a text for a number | yes | no | 30 | strings compare alike |
| an integer for a float in a list | yes | no | 6 | an integer may stand for a float at every depth |
| parallel calls in another order | yes | no | 1 | calls are assigned as a whole, not one after the other |

Four items cannot be answered right, here and there: live_simple_106-63-0 and live_simple_112-68-0 accept no value at
all for a required parameter, live_multiple_862-181-3 and live_multiple_964-207-0 want one that the function lacks.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from evals.bfcl_calls import Call

Expected = Mapping[str, Mapping[str, Sequence[Any]]]
Schema = Mapping[str, Any]

_IGNORED = re.compile(r"[\s,./\-_*^]")
_LEFT_OUT = ""


def standard(text: str) -> str:
    """A string as it is compared."""
    return _IGNORED.sub("", text).lower().replace("'", '"')


def equal(value: Any, accepted: Any, schema: Schema) -> bool:
    """Whether a value is this accepted one. schema: of the parameter, in BFCL's type names; {} where none is known."""
    if isinstance(value, str) and isinstance(accepted, str):
        return standard(value) == standard(accepted)
    if isinstance(value, bool) or isinstance(accepted, bool):
        return isinstance(value, bool) and isinstance(accepted, bool) and value == accepted
    if isinstance(value, int | float) and isinstance(accepted, int | float):
        widened = isinstance(value, float) and isinstance(accepted, int)
        return value == accepted and (not widened or schema.get("type") == "float")
    if isinstance(value, list) and isinstance(accepted, list):
        items = _inner(schema, "items")
        return len(value) == len(accepted) and all(equal(v, a, items) for v, a in zip(value, accepted, strict=True))
    if isinstance(value, dict) and isinstance(accepted, dict):
        return _equal_dict(value, accepted, _inner(schema, "properties"))
    return value is None and accepted is None


def _inner(schema: Schema, key: str) -> Schema:
    found = schema.get(key)
    return found if isinstance(found, Mapping) else {}


def _equal_dict(value: Mapping[str, Any], accepted: Mapping[str, Any], properties: Schema) -> bool:
    if not value.keys() <= accepted.keys():
        return False
    for key, options in accepted.items():
        if key not in value:
            if not (isinstance(options, list) and _LEFT_OUT in options):
                return False
        elif not _one_of(value[key], options if isinstance(options, list) else [options], _inner(properties, key)):
            return False
    return True


def _one_of(value: Any, options: Sequence[Any], schema: Schema) -> bool:
    return any(equal(value, option, schema) for option in options)


def difference(call: Call, expected: Expected, functions: Mapping[str, Schema]) -> str:
    """Why a call is not the expected one, "" if it is. functions: the schema of the parameters by function."""
    ((name, accepted),) = expected.items()
    if call.name != name:
        return f"calls {call.name[:60]!r}, not {name!r}"
    parameters = functions.get(name, {})
    properties = _inner(parameters, "properties")
    for parameter in parameters.get("required", ()):
        if parameter not in call.arguments:
            return f"{name}: {parameter} is missing"
    for parameter, value in call.arguments.items():
        if parameter not in properties or parameter not in accepted:
            return f"{name}: {parameter[:60]!r} is not expected"
        if not _one_of(value, accepted[parameter], _inner(properties, parameter)):
            allowed = json.dumps(accepted[parameter])[:100]
            return f"{name}: {parameter} is {json.dumps(value)[:60]}, not one of {allowed}"
    for parameter, options in accepted.items():
        if parameter not in call.arguments and _LEFT_OUT not in options:
            return f"{name}: {parameter} is missing"
    return ""


def differences(calls: Sequence[Call], expected: Sequence[Expected], functions: Mapping[str, Schema]) -> str:
    """Why the calls are not the expected ones in some order, "" if they are."""
    if len(calls) != len(expected):
        return f"{len(calls)} calls, not {len(expected)}"
    reasons = [[difference(call, one, functions) for call in calls] for one in expected]
    taken: dict[int, int] = {}  # call -> expected call, grown along augmenting paths

    def place(one: int, seen: set[int]) -> bool:
        for call in range(len(calls)):
            if not reasons[one][call] and call not in seen:
                seen.add(call)
                if call not in taken or place(taken[call], seen):
                    taken[call] = one
                    return True
        return False

    for one in range(len(expected)):
        if not place(one, set()):
            return min(reasons[one], key=lambda reason: (reason.startswith("calls "), not reason)) or "one call too few"
    return ""
