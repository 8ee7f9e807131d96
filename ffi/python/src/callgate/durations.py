"""Durations: "250ms", or an int of nanoseconds."""

from __future__ import annotations

import re
from typing import Final

UNITS_NS: Final = {
    "ns": 1,
    "us": 1_000,
    "ms": 1_000_000,
    "s": 1_000_000_000,
    "m": 60_000_000_000,
    "h": 3_600_000_000_000,
    "d": 86_400_000_000_000,
    "w": 604_800_000_000_000,
}

_DURATION: Final = re.compile(r"([0-9]{1,20}) ?(ns|us|ms|s|m|h|d|w)")


def parse_duration(text: str) -> int:
    """The nanoseconds of a duration such as "250ms". Raises ValueError where it is none."""
    found = _DURATION.fullmatch(text)
    if found is None:
        raise ValueError(
            f"{text!r} is not a duration: write a whole number and one of the units "
            f"{', '.join(UNITS_NS)}, as in '250ms', '1s', '5m', '1d'; or an int of nanoseconds"
        )
    return int(found[1]) * UNITS_NS[found[2]]


def duration_text(ns: int) -> str:
    """A duration to be read by people: three digits and the unit that suits them."""
    for unit in ("d", "h", "m", "s", "ms", "us"):
        if ns >= UNITS_NS[unit]:
            return f"{ns / UNITS_NS[unit]:.3g} {unit}"
    return f"{ns} ns"
