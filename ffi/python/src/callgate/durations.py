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
    """A duration to be read by people: three digits and the unit that suits them. Rounded up, so
    that who waits for so long has not waited too short."""
    units = ("us", "ms", "s", "m", "h", "d")
    unit = next((unit for unit in reversed(units) if ns >= UNITS_NS[unit]), None)
    if unit is None:
        return f"{ns} ns"
    rounded_ns = _rounded_up(ns, unit)
    # 999.9 ms are 1000 ms, and that is 1 s.
    unit = next(unit for unit in reversed(units) if rounded_ns >= UNITS_NS[unit])
    whole, rest_ns = divmod(rounded_ns, UNITS_NS[unit])
    if rest_ns == 0:
        return f"{whole} {unit}"
    decimals = _decimals(whole)
    return (
        f"{whole}.{rest_ns * 10**decimals // UNITS_NS[unit]:0{decimals}}".rstrip("0") + f" {unit}"
    )


def _rounded_up(ns: int, unit: str) -> int:
    whole = ns // UNITS_NS[unit]
    step_ns: int = UNITS_NS[unit] // 10 ** _decimals(whole) * 10 ** max(0, len(str(whole)) - 3)
    return -(-ns // step_ns) * step_ns


def _decimals(whole: int) -> int:
    """Behind so many units, to have three digits."""
    return max(0, 3 - len(str(whole)))
