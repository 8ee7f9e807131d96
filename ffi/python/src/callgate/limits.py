"""The kinds of limits that a gate is made from."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, TypeAlias, final

from callgate import _engine
from callgate.durations import parse_duration
from callgate.errors import ConfigError, config_error
from callgate.integers import integer

EngineLimit: TypeAlias = tuple[int, int, int, int]
"""Kind, count, period_ns, burst: a limit as the engine takes it."""


@final
@dataclass(frozen=True, init=False, repr=False, slots=True)
class RateLimit:
    """A token bucket: `count` tokens come back in each period, up to `burst`.

    RateLimit(30, per="1s", burst=60)

    count  tokens for each period, 1 to 2^64-1
    per    the period: a str such as "250ms", "1s", "5m", "2h", "1d", "1w", or an int of
           nanoseconds, 1 to 2^64-1. Kept as `period_ns`
    burst  what a full bucket holds, 1 or more tokens; `count` by default. Filling it from empty
           (burst * per / count) must take at most 2^61 ns, 73 years

    Tokens come back one by one, not all at once when a period ends. Raises ConfigError where a
    number is out of its range. There is no rate of 0: to switch a limit off, say callgate.OFF.
    """

    count: int
    period_ns: int
    burst: int

    def __init__(self, count: int, per: str | int = "1s", burst: int | None = None) -> None:
        count = integer("count", count)
        period_ns = _period("per", per)
        burst = count if burst is None else integer("burst", burst)
        fault = _engine.check_limit((_engine.CALLGATE_KIND_RATE, count, period_ns, burst))
        if fault is not None:
            field, sentence = fault
            given = f"count={count}, period_ns={period_ns}, burst={burst}"
            raise config_error(field, f"{sentence} (given: {given})")
        object.__setattr__(self, "count", count)
        object.__setattr__(self, "period_ns", period_ns)
        object.__setattr__(self, "burst", burst)

    def __repr__(self) -> str:
        return f"RateLimit({self.count}, per={self.period_ns}, burst={self.burst})"


@final
class Off:
    """The type of `OFF`."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "callgate.OFF"

    def __reduce__(self) -> str:
        return "OFF"


OFF: Final = Off()
"""A limit that admits everything and keeps nothing: switched off, explicitly."""

Limit: TypeAlias = RateLimit | Off
"""Any kind of limit."""


def engine_limit(limit: Limit) -> EngineLimit:
    """A limit as the engine takes it."""
    if isinstance(limit, RateLimit):
        return (_engine.CALLGATE_KIND_RATE, limit.count, limit.period_ns, limit.burst)
    return (_engine.CALLGATE_KIND_OFF, 0, 0, 0)


def _period(name: str, value: str | int) -> int:
    if not isinstance(value, str):
        return integer(name, value, "a str such as '250ms' or an int of nanoseconds")
    try:
        return parse_duration(value)
    except ValueError as error:
        raise ConfigError(f"{name}: {error}", "period_ns") from None
