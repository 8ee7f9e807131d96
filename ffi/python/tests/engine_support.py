"""What the tests of the engine share."""

from __future__ import annotations

import os
from collections.abc import Callable

from callgate import Gate, RateLimit

SECOND_NS = 1_000_000_000

Rules = list[tuple[str, str]]


def gate_of(
    count: int = 30,
    burst: int = 60,
    per: str | int = "1s",
    scope: str = "caller",
    **options: object,
) -> Gate:
    """A gate of one rate limit, `rate`, under one policy, `default`."""
    return Gate(
        limits={"rate": RateLimit(count, per=per, burst=burst)},
        policies={"default": [("rate", scope)]},  # type: ignore[list-item]
        **options,  # type: ignore[arg-type]
    )


def remaining(gate: Gate, caller: str = "alice", now_ns: int = 0) -> int:
    """What is left of the caller's bucket."""
    return gate.peek("default", caller, cost=0, now_ns=now_ns)[0].remaining


def admitted(gate: Gate, attempts: int, caller: str = "alice", now_ns: int = 0) -> int:
    """How many of so many calls are admitted."""
    return sum(gate.try_admit("default", caller, now_ns=now_ns).admitted for _ in range(attempts))


def in_child(work: Callable[[], int]) -> int:
    """Runs `work` in a forked process; returns what it returns, 0 to 100."""
    child = os.fork()
    if child == 0:
        code = 101
        try:
            code = work()
        finally:
            os._exit(code)
    _, status = os.waitpid(child, 0)
    code = os.waitstatus_to_exitcode(status)
    assert 0 <= code <= 100, f"the child failed: {code}"
    return code


def resident_bytes() -> int:
    """The memory that this process has in use."""
    return _statm(1)


def mapped_bytes() -> int:
    """The memory that this process has mapped."""
    return _statm(0)


def _statm(column: int) -> int:
    with open("/proc/self/statm", encoding="ascii") as statm:
        return int(statm.read().split()[column]) * os.sysconf("SC_PAGE_SIZE")
