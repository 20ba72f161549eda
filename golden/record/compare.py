"""The first difference between a recorded answer and a new one; nothing is tolerated."""

import json


def first_difference(expected: object, actual: object, path: str = "$") -> str | None:
    """Returns "path: expected ..., got ..." of the first difference, or None when there is none.

    Both must be plain JSON values. Arrays are ordered, objects are not; numbers must be equal to
    the last bit, and neither side may have a key that the other lacks.
    """
    if isinstance(expected, dict) and isinstance(actual, dict):
        for key, value in expected.items():
            if key not in actual:
                return f"{path}.{key}: expected {_short(value)}, got nothing"
            difference = first_difference(value, actual[key], f"{path}.{key}")
            if difference is not None:
                return difference
        for key, value in actual.items():
            if key not in expected:
                return f"{path}.{key}: expected nothing, got {_short(value)}"
        return None
    if isinstance(expected, list) and isinstance(actual, list):
        for index, (left, right) in enumerate(zip(expected, actual)):
            difference = first_difference(left, right, f"{path}[{index}]")
            if difference is not None:
                return difference
        if len(expected) != len(actual):
            return f"{path}: expected {len(expected)} entries, got {len(actual)}"
        return None
    # True == 1 in Python, but not in JSON.
    if isinstance(expected, bool) != isinstance(actual, bool) or expected != actual:
        return f"{path}: expected {_short(expected)}, got {_short(actual)}"
    return None


def _short(value: object) -> str:
    text = json.dumps(value)
    return text if len(text) <= 120 else text[:117] + "..."
