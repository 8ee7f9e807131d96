"""A gate from the environment: sensible without any variable.

| variable                       | default  | meaning                                             |
| ------------------------------ | -------- | --------------------------------------------------- |
| `MCP_RATE_LIMIT`               | 30       | tool calls a second, per caller; 0 switches the     |
|                                |          | rate limits off, for every class of callers         |
| `MCP_RATE_LIMIT_BURST`         | 2 x rate | tool calls at once after a rest, per caller         |
| `MCP_RATE_LIMIT_ANONYMOUS`     | 100      | tool calls a second of all anonymous callers        |
|                                |          | together (burst 2 x); 0 is unlimited                |
| `MCP_MAX_CONCURRENCY`          | 3        | tool calls that may run at once, of all callers;    |
|                                |          | 0 is unlimited                                      |
| `MCP_BREAKER_TRIP_THRESHOLD`   | 5        | so many calls in a row for which there is no place  |
|                                |          | open the breaker; 0: they never do                  |
| `MCP_BREAKER_COOLDOWN_SECONDS` | 30       | for how long it then refuses every call             |
| `MCP_DAILY_TOKEN_LIMIT`        | 50000    | units a day (UTC) that a caller's tools may report, |
|                                |          | see `report_usage`; 0 and less switch it off        |
| `MCP_API_KEYS`                 | none     | `key:user,key2:user2`, see `callgate.mcp.APIKeys`   |
| `MCP_AUTH_ENABLED`             | see keys | whether a key is demanded: true where there are any |

What cannot be parsed, or is out of range, keeps its default, with a warning in the log at start.
The limits that come of it are logged as one line at level INFO.
"""

from __future__ import annotations

import logging
import os
import re
import threading
from collections.abc import Callable, Mapping
from typing import Any, Final

from callgate import OFF, ConcurrencyLimit, ConfigError, Gate, Quota, RateLimit
from callgate.limits import Limit
from callgate.mcp.callers import ANONYMOUS, AUTHENTICATED, FORWARDED_BEARER
from callgate.vocabulary import Scope

logger = logging.getLogger("callgate.mcp")

RATE: Final = "MCP_RATE_LIMIT"
BURST: Final = "MCP_RATE_LIMIT_BURST"
ANONYMOUS_RATE: Final = "MCP_RATE_LIMIT_ANONYMOUS"
PLACES: Final = "MCP_MAX_CONCURRENCY"
TRIP: Final = "MCP_BREAKER_TRIP_THRESHOLD"
COOLDOWN: Final = "MCP_BREAKER_COOLDOWN_SECONDS"
TOKENS: Final = "MCP_DAILY_TOKEN_LIMIT"

DEFAULT_RATE: Final = 30
DEFAULT_ANONYMOUS_RATE: Final = 100
DEFAULT_PLACES: Final = 3
DEFAULT_TRIP: Final = 5
DEFAULT_COOLDOWN_S: Final = 30
DEFAULT_TOKENS: Final = 50_000

_LEASE: Final = "2h"
_INTEGER: Final = re.compile(r"[+-]?[0-9]{1,20}", re.ASCII)

_default_gate: Gate | None = None
_default_gate_lock = threading.Lock()

Rules = list[tuple[str, Scope]]


def gate_from_env(environ: Mapping[str, str] | None = None, **gate_options: Any) -> Gate:
    """A gate with the policies `authenticated`, `anonymous` and `forwarded-bearer`.

    `environ` defaults to `os.environ`. `gate_options` go to `Gate` as they are (`capacity`,
    `memory`, `secret`).
    """
    env = os.environ if environ is None else environ
    limits = {**_rates(env), "tokens": _tokens(env), "server": _server(env)}
    is_limited = limits["anonymous"] is not OFF
    # In this order: a bearer that nobody verified has a bucket of its own only once the shared
    # allowance admits it, so that rotating bearers mints no buckets beyond that allowance. Where
    # anonymous calls are unlimited so are unverified ones: a limit that a caller escapes by leaving
    # out a header is none, and buckets for such callers would only fill the table. They have no
    # daily quota for the same reason.
    forwarded: Rules = [("forwarded", "shared"), ("caller", "caller")]
    policies: dict[str, Rules] = {
        AUTHENTICATED: [("caller", "caller"), ("tokens", "caller")],
        ANONYMOUS: [("anonymous", "shared")],
        FORWARDED_BEARER: forwarded if is_limited else [("anonymous", "shared")],
    }
    for rules in policies.values():
        # Last, so that no place is taken by a call that another limit refuses.
        rules.append(("server", "shared"))
    used = {name for rules in policies.values() for name, _ in rules}
    limits = {name: limit for name, limit in limits.items() if name in used}
    logger.info("effective limits: %s", "; ".join(_in_words(limits)))
    return Gate(limits=limits, policies=policies, **gate_options)


def default_gate() -> Gate:
    """The process's one gate from `os.environ`: what every middleware uses that is given none.

    One gate, so that a call which passes two middlewares on its way is charged once.
    """
    global _default_gate
    with _default_gate_lock:
        if _default_gate is None:
            _default_gate = gate_from_env()
        return _default_gate


def _rates(env: Mapping[str, str]) -> dict[str, Limit]:
    rate = _value(env, RATE, DEFAULT_RATE, _is_rate)
    if rate == 0:
        for name in (BURST, ANONYMOUS_RATE):
            if name in env:
                logger.warning("%s is set, but %s=0 switches rate limiting off", name, RATE)
        return {"caller": OFF, "anonymous": OFF, "forwarded": OFF}
    burst = _value(env, BURST, 2 * rate, lambda value: _is_bucket(rate, value))
    anonymous = _value(env, ANONYMOUS_RATE, DEFAULT_ANONYMOUS_RATE, _is_rate)
    shared: Limit = OFF
    if anonymous:
        shared = RateLimit(anonymous, per="1s", burst=2 * anonymous)
    return {
        "caller": RateLimit(rate, per="1s", burst=burst),
        "anonymous": shared,
        "forwarded": shared,
    }


def _server(env: Mapping[str, str]) -> Limit:
    places = _value(env, PLACES, DEFAULT_PLACES, lambda value: value == 0 or _is_guard(value))
    trip = _value(env, TRIP, DEFAULT_TRIP, lambda value: _is_guard(reject_trip=value))
    cooldown_s = _value(
        env, COOLDOWN, DEFAULT_COOLDOWN_S, lambda value: _is_guard(reject_trip=1, cooldown_s=value)
    )
    return _guard(places, trip, cooldown_s) if places else OFF


def _tokens(env: Mapping[str, str]) -> Limit:
    units = _value(env, TOKENS, DEFAULT_TOKENS, lambda value: value <= 0 or _is_quota(value))
    return Quota(units, per="1d") if units > 0 else OFF


def _value(
    env: Mapping[str, str], name: str, default: int, is_in_range: Callable[[int], bool]
) -> int:
    text = env.get(name)
    if text is None:
        return default
    if not _INTEGER.fullmatch(text.strip()):
        logger.warning("%s=%r is not a whole number: using the default, %d", name, text, default)
        return default
    value = int(text)
    if not is_in_range(value):
        logger.warning("%s=%d is out of range: using the default, %d", name, value, default)
        return default
    return value


# --- what the engine takes: asked of the engine, which alone keeps the bounds ------------------


def _guard(places: int, reject_trip: int, cooldown_s: int) -> ConcurrencyLimit:
    return ConcurrencyLimit(
        places, lease=_LEASE, reject_trip=reject_trip, cooldown=cooldown_s * 1_000_000_000
    )


def _is_made(make: Callable[[], Limit]) -> bool:
    try:
        Gate(limits={"x": make()}, policies={"x": [("x", "shared")]}, capacity=1, memory="private")
    except (ConfigError, OverflowError):
        return False
    return True


def _is_bucket(rate: int, burst: int) -> bool:
    return _is_made(lambda: RateLimit(rate, per="1s", burst=burst))


def _is_rate(value: int) -> bool:
    return value == 0 or _is_bucket(value, 2 * value)


def _is_guard(places: int = 1, reject_trip: int = 0, cooldown_s: int = 1) -> bool:
    return _is_made(lambda: _guard(places, reject_trip, cooldown_s))


def _is_quota(units: int) -> bool:
    return _is_made(lambda: Quota(units, per="1d"))


# --- the start-up line -------------------------------------------------------------------------


def _in_words(limits: Mapping[str, Limit]) -> list[str]:
    words = []
    for name, limit in limits.items():
        if isinstance(limit, RateLimit):
            words.append(f"{name} {limit.count} calls a second, burst {limit.burst}")
        elif isinstance(limit, Quota):
            words.append(f"{name} {limit.limit} a day")
        elif isinstance(limit, ConcurrencyLimit):
            breaker = (
                f"the breaker opens for {limit.cooldown_ns // 1_000_000_000} s after "
                f"{limit.reject_trip} refusals in a row"
                if limit.reject_trip
                else "no breaker"
            )
            words.append(f"{name} {limit.max_in_flight} calls at once, {breaker}")
        else:
            words.append(f"{name} unlimited")
    return words
