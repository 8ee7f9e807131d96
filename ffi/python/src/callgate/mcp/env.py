"""A gate from the environment: three variables, sensible without any of them.

| variable                   | default  | meaning                                                 |
| -------------------------- | -------- | ------------------------------------------------------- |
| `MCP_RATE_LIMIT`           | 30       | tool calls a second, per caller; 0 switches all of this |
|                            |          | off, for every class of callers                         |
| `MCP_RATE_LIMIT_BURST`     | 2 x rate | tool calls at once after a rest, per caller             |
| `MCP_RATE_LIMIT_ANONYMOUS` | 100      | tool calls a second of all anonymous callers together   |
|                            |          | (burst 2 x); 0 is unlimited                             |

What cannot be parsed, or is out of range, keeps its default, with a warning in the log at start.
"""

from __future__ import annotations

import logging
import os
import re
import threading
from collections.abc import Mapping
from typing import Any, Final

from callgate import OFF, ConfigError, Gate, RateLimit
from callgate.limits import Limit
from callgate.mcp.callers import ANONYMOUS, AUTHENTICATED, FORWARDED_BEARER
from callgate.vocabulary import Scope

logger = logging.getLogger("callgate.mcp")

RATE: Final = "MCP_RATE_LIMIT"
BURST: Final = "MCP_RATE_LIMIT_BURST"
ANONYMOUS_RATE: Final = "MCP_RATE_LIMIT_ANONYMOUS"

DEFAULT_RATE: Final = 30
DEFAULT_ANONYMOUS_RATE: Final = 100

_INTEGER: Final = re.compile(r"[+-]?[0-9]{1,20}", re.ASCII)

_default_gate: Gate | None = None
_default_gate_lock = threading.Lock()


def gate_from_env(environ: Mapping[str, str] | None = None, **gate_options: Any) -> Gate:
    """A gate with the policies `authenticated`, `anonymous` and `forwarded-bearer`.

    `environ` defaults to `os.environ`. `gate_options` go to `Gate` as they are (`capacity`,
    `memory`, `secret`).
    """
    env = os.environ if environ is None else environ
    rate = _rate(env, RATE, DEFAULT_RATE)
    if rate == 0:
        return _open_gate(env, gate_options)
    caller = _caller_limit(env, rate)
    anonymous_rate = _rate(env, ANONYMOUS_RATE, DEFAULT_ANONYMOUS_RATE)
    limits: dict[str, Limit] = {"caller": caller, "anonymous": OFF}
    forwarded: list[tuple[str, Scope]] = [("anonymous", "shared")]
    if anonymous_rate:
        limits["anonymous"] = RateLimit(anonymous_rate, per="1s", burst=2 * anonymous_rate)
        limits["forwarded"] = RateLimit(anonymous_rate, per="1s", burst=2 * anonymous_rate)
        # In this order: a bearer that nobody verified has a bucket of its own only once the shared
        # allowance admits it, so that rotating bearers mints no buckets beyond that allowance.
        forwarded = [("forwarded", "shared"), ("caller", "caller")]
    # Where anonymous calls are unlimited so are unverified ones: a limit that a caller escapes by
    # leaving out a header is none, and buckets for such callers would only fill the table.
    policies: dict[str, list[tuple[str, Scope]]] = {
        AUTHENTICATED: [("caller", "caller")],
        ANONYMOUS: [("anonymous", "shared")],
        FORWARDED_BEARER: forwarded,
    }
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


def _open_gate(env: Mapping[str, str], gate_options: dict[str, Any]) -> Gate:
    for name in (BURST, ANONYMOUS_RATE):
        if name in env:
            logger.warning("%s is set, but %s=0 switches rate limiting off", name, RATE)
    policy: list[tuple[str, Scope]] = [("calls", "shared")]
    policies = {AUTHENTICATED: policy, ANONYMOUS: policy, FORWARDED_BEARER: policy}
    return Gate(limits={"calls": OFF}, policies=policies, **gate_options)


def _rate(env: Mapping[str, str], name: str, default: int) -> int:
    value = _integer(env, name)
    if value is None:
        return default
    if value < 0 or (value > 0 and not _is_configurable(value, 2 * value)):
        logger.warning("%s=%d is out of range: using the default, %d", name, value, default)
        return default
    return value


def _caller_limit(env: Mapping[str, str], rate: int) -> RateLimit:
    burst = _integer(env, BURST)
    if burst is not None and not _is_configurable(rate, burst):
        logger.warning("%s=%d is out of range: using the default, %d", BURST, burst, 2 * rate)
        burst = None
    return RateLimit(rate, per="1s", burst=2 * rate if burst is None else burst)


def _integer(env: Mapping[str, str], name: str) -> int | None:
    text = env.get(name)
    if text is None:
        return None
    if _INTEGER.fullmatch(text.strip()):
        return int(text)
    logger.warning("%s=%r is not a whole number: using the default", name, text)
    return None


def _is_configurable(rate: int, burst: int) -> bool:
    """Whether the engine takes this limit: asked of the engine, which alone keeps the bounds."""
    try:
        limit = RateLimit(rate, per="1s", burst=burst)
        Gate(limits={"x": limit}, policies={"x": [("x", "shared")]}, capacity=1, memory="private")
    except (ConfigError, OverflowError):
        return False
    return True
