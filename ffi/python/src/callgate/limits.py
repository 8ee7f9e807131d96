"""The kinds of limits that a gate is made from."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import tzinfo
from typing import Final, TypeAlias, final

from callgate import _engine
from callgate.durations import UNITS_NS, parse_duration
from callgate.errors import ConfigError, config_error
from callgate.integers import integer
from callgate.zones import zone_of

EngineLimit: TypeAlias = tuple[int, ...]
"""A limit as the engine takes it: its kind, and the fields of that kind in the engine's order."""

_DAY_NS: Final = UNITS_NS["d"]
_SECOND_NS: Final = UNITS_NS["s"]


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
        object.__setattr__(self, "count", count)
        object.__setattr__(self, "period_ns", _duration("per", per, "period_ns"))
        object.__setattr__(self, "burst", count if burst is None else integer("burst", burst))
        _check(self, f"count={count}, period_ns={self.period_ns}, burst={self.burst}")

    def __repr__(self) -> str:
        return f"RateLimit({self.count}, per={self.period_ns}, burst={self.burst})"


@final
@dataclass(frozen=True, init=False, repr=False, slots=True)
class ConcurrencyLimit:
    """So many calls at once, and a breaker that opens when too many are refused or fail.

    ConcurrencyLimit(3, lease="2h", reject_trip=5, cooldown="30s")

    max_in_flight     calls that may run at once, 1 to 4095
    lease             a call that is never settled gives its place back by itself, between one and
                      two of these later: 1 ms to 2^61 ns. Longer than any call takes: one that is
                      settled later is told "lapsed". It can't be reconfigured. Kept as `lease_ns`
    reject_trip       so many refusals in a row, with no call settled in between, open the breaker:
                      0 to 63; 0: refusals never do
    failure_trip      so many calls in a row that fail open it: 0 to 63; 0: failures never do
    cooldown          for how long it is open then: at least 1 ms where there is a trip, at most
                      2^61 ns and 50,000 leases. Kept as `cooldown_ns`
    half_open_probes  after the cooldown so many calls at a time probe the way, 0 to 15: one that
                      succeeds closes the breaker, one that fails opens it anew. 0: the breaker is
                      closed after the cooldown

    Durations are a str such as "250ms", "30s", "2h", or an int of nanoseconds. Over the limit a
    call is refused at once; nothing queues. Raises ConfigError where a number is out of its range.
    """

    max_in_flight: int
    lease_ns: int
    reject_trip: int
    failure_trip: int
    cooldown_ns: int
    half_open_probes: int

    def __init__(
        self,
        max_in_flight: int,
        *,
        lease: str | int = "2h",
        reject_trip: int = 0,
        failure_trip: int = 0,
        cooldown: str | int = "0s",
        half_open_probes: int = 0,
    ) -> None:
        fields = {
            "max_in_flight": integer("max_in_flight", max_in_flight),
            "lease_ns": _duration("lease", lease, "lease_ns"),
            "reject_trip": integer("reject_trip", reject_trip),
            "failure_trip": integer("failure_trip", failure_trip),
            "cooldown_ns": _duration("cooldown", cooldown, "cooldown_ns"),
            "half_open_probes": integer("half_open_probes", half_open_probes),
        }
        for name, value in fields.items():
            object.__setattr__(self, name, value)
        _check(self, ", ".join(f"{name}={value}" for name, value in fields.items()))

    def __repr__(self) -> str:
        return (
            f"ConcurrencyLimit({self.max_in_flight}, lease={self.lease_ns},"
            f" reject_trip={self.reject_trip}, failure_trip={self.failure_trip},"
            f" cooldown={self.cooldown_ns}, half_open_probes={self.half_open_probes})"
        )


@final
@dataclass(frozen=True, init=False, repr=False, slots=True)
class Quota:
    """So many units in each window of the calendar, for costs that are known only afterwards.

    Quota(50_000, per="1d", tz="Asia/Shanghai")

    limit          units in a window, 1 to 2^47
    per            how long a window is, in whole seconds, 1 to 2^33: a str such as "1h", "1d", or
                   an int of nanoseconds. Kept as `period_s`
    tz             an IANA name or a tzinfo: windows are the calendar days of that zone, also those
                   of 23 and 25 hours; `per` must be "1d" then
    anchor_unix_s  without `tz`: when one of the windows begins, in seconds since the Unix epoch,
                   -2^63 to 2^63-1. 0: days begin at midnight in UTC
    must_seed      calls are refused ("unseeded") until `Gate.seed` has told, for the caller and the
                   window, what was used before

    A call says what it used by `Call.used` or `Gate.settle`; that may be more than was left, and
    refuses the next call then. Raises ConfigError where a number is out of its range. There is no
    quota of 0: to switch a limit off, say callgate.OFF.
    """

    limit: int
    period_s: int
    anchor_unix_s: int
    must_seed: bool
    tz: tzinfo | None

    def __init__(
        self,
        limit: int,
        *,
        per: str | int = "1d",
        tz: str | tzinfo | None = None,
        anchor_unix_s: int = 0,
        must_seed: bool = False,
    ) -> None:
        if not isinstance(must_seed, bool):
            raise TypeError(f"must_seed must be a bool, not {type(must_seed).__name__}")
        zone = zone_of(tz)
        anchor = _anchor(anchor_unix_s, zone)
        object.__setattr__(self, "limit", integer("limit", limit))
        object.__setattr__(self, "period_s", _period_s(per, zone))
        object.__setattr__(self, "anchor_unix_s", anchor)
        object.__setattr__(self, "must_seed", must_seed)
        object.__setattr__(self, "tz", zone)
        _check(self, f"limit={self.limit}, period_s={self.period_s}, anchor_unix_s={anchor}")

    def __repr__(self) -> str:
        windows = f"per='{self.period_s}s', anchor_unix_s={self.anchor_unix_s}"
        if self.tz is not None:
            windows = f"tz={str(self.tz)!r}"
        return f"Quota({self.limit}, {windows}, must_seed={self.must_seed})"


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

Limit: TypeAlias = RateLimit | ConcurrencyLimit | Quota | Off
"""Any kind of limit."""

KINDS: Final = (RateLimit, ConcurrencyLimit, Quota, Off)
KINDS_TEXT: Final = "a RateLimit, ConcurrencyLimit, Quota or OFF"


def engine_limit(limit: Limit) -> EngineLimit:
    """A limit as the engine takes it."""
    if isinstance(limit, RateLimit):
        return (_engine.CALLGATE_KIND_RATE, limit.count, limit.period_ns, limit.burst)
    if isinstance(limit, ConcurrencyLimit):
        return (
            _engine.CALLGATE_KIND_CONCURRENCY,
            limit.max_in_flight,
            limit.lease_ns,
            limit.reject_trip,
            limit.failure_trip,
            limit.cooldown_ns,
            limit.half_open_probes,
        )
    if isinstance(limit, Quota):
        period_s = 0 if limit.tz is not None else limit.period_s  # 0: its windows are set
        anchor_unix_s, must_seed = limit.anchor_unix_s, int(limit.must_seed)
        return (_engine.CALLGATE_KIND_QUOTA, limit.limit, period_s, anchor_unix_s, must_seed)
    return (_engine.CALLGATE_KIND_OFF,)


def _check(limit: Limit, given: str) -> None:
    """Raises ConfigError where the engine finds a number out of its range."""
    fault = _engine.check_limit(engine_limit(limit))
    if fault is not None:
        field, sentence = fault
        raise config_error(field, f"{sentence} (given: {given})")


def _duration(name: str, value: str | int, field: str) -> int:
    if not isinstance(value, str):
        return integer(name, value, "a str such as '250ms' or an int of nanoseconds")
    try:
        return parse_duration(value)
    except ValueError as error:
        raise ConfigError(f"{name}: {error}", field) from None


def _period_s(per: str | int, zone: tzinfo | None) -> int:
    period_ns = _duration("per", per, "period_s")
    if zone is not None and period_ns != _DAY_NS:
        raise ConfigError(
            f"per must be '1d' where there is a tz: windows are its calendar days, not {per!r}",
            "period_s",
        )
    if period_ns % _SECOND_NS != 0 or not 1 <= period_ns // _SECOND_NS <= 2**33:
        raise ConfigError(
            f"per must be 1 to 2^33 whole seconds, such as '1h' or '1d', not {per!r}", "period_s"
        )
    return period_ns // _SECOND_NS


def _anchor(anchor_unix_s: int, zone: tzinfo | None) -> int:
    anchor = integer("anchor_unix_s", anchor_unix_s)
    if zone is not None and anchor != 0:
        raise ConfigError(
            "anchor_unix_s must be 0 where there is a tz: windows begin at its midnights",
            "anchor_unix_s",
        )
    if not -(2**63) <= anchor < 2**63:
        raise ConfigError("anchor_unix_s must be -2^63 to 2^63-1 s", "anchor_unix_s")
    return anchor
