"""Calendar days in time zones: where the windows of a quota with a `tz` begin and end."""

from __future__ import annotations

from datetime import date, datetime, time, timedelta, tzinfo
from typing import Final
from zoneinfo import ZoneInfo

from callgate.errors import ConfigError

AHEAD_S: Final = 60
"""A day is set that long before it begins. Until then the engine's windows have its length, but end
when it begins, as they should."""

_ONE_DAY: Final = timedelta(days=1)


def zone_of(tz: str | tzinfo | None) -> tzinfo | None:
    """The zone of that name. Raises ConfigError where there is none, TypeError for no name."""
    if tz is None or isinstance(tz, tzinfo):
        return tz
    if not isinstance(tz, str):
        raise TypeError(
            f"tz must be an IANA name such as 'Europe/Berlin', a tzinfo or None, not"
            f" {type(tz).__name__}"
        )
    try:
        return ZoneInfo(tz)
    except (ValueError, OSError, KeyError):  # ZoneInfoNotFoundError is a KeyError
        raise ConfigError(
            f"tz: {tz!r} is not a time zone known here; it must be an IANA name such as"
            " 'Europe/Berlin' (where the system has no zones at all, install tzdata)",
            "tz",
        ) from None


def day_of(tz: tzinfo, unix_s: int) -> tuple[int, int]:
    """When the calendar day of that second begins and ends, in seconds since the Unix epoch."""
    day = datetime.fromtimestamp(unix_s, tz).date()
    return max(0, _midnight(day, tz)), _midnight(day + _ONE_DAY, tz)


def _midnight(day: date, tz: tzinfo) -> int:
    """When a day begins: of two midnights the first, of a midnight that is skipped the instant at
    which the clock jumps over it."""
    return int(datetime.combine(day, time.min, tz).timestamp())
