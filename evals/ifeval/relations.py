"""The two relations that instructions of a count use."""

from __future__ import annotations

from engine import errors

RELATIONS = ("at least", "less than")


def compares(count: int, relation: str, bound: int) -> bool:
    """Whether `count` is in this relation to `bound`; "less than" leaves `bound` itself out."""
    if relation == "at least":
        return count >= bound
    if relation == "less than":
        return count < bound
    raise errors.InvalidValue("relation", relation, RELATIONS)
