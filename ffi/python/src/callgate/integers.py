"""Whole numbers as arguments."""

from __future__ import annotations

from operator import index
from typing import Final

U64_MAX: Final = 2**64 - 1


def integer(name: str, value: object, wanted: str = "an int") -> int:
    """The int that `value` is, or TypeError. bool is refused: True for a number is a mistake."""
    if not isinstance(value, bool):
        try:
            return index(value)  # type: ignore[arg-type]
        except TypeError:
            pass
    raise TypeError(f"{name} must be {wanted}, not {type(value).__name__}")
