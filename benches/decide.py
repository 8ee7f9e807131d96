"""What one decision costs from Python: `make bench-python`.

Prints the best of several rounds in nanoseconds, the loop's own cost included. The peer is what
people write by hand: a dictionary of buckets under a lock, doing the same work.
"""

from __future__ import annotations

import platform
import threading
import time
import timeit

from callgate import Gate, RateLimit

CALLERS = 10_000
ROUNDS = 9
LOOPS = 200_000


class Bucket:
    """A token bucket per caller, as written by hand."""

    def __init__(self, rate: float, burst: float) -> None:
        self.rate, self.burst = rate, burst
        self.lock = threading.Lock()
        self.buckets: dict[str, tuple[float, float]] = {}

    def allow(self, caller: str) -> bool:
        now = time.monotonic()
        with self.lock:
            tokens, then = self.buckets.get(caller, (self.burst, now))
            tokens = min(self.burst, tokens + (now - then) * self.rate)
            admitted = tokens >= 1
            self.buckets[caller] = (tokens - admitted, now)
            return admitted


def best_ns(statement: str, names: dict[str, object]) -> float:
    rounds = timeit.repeat(statement, globals=names, number=LOOPS, repeat=ROUNDS)
    return min(rounds) / LOOPS * 1e9


def main() -> None:
    gate = Gate(
        limits={"caller": RateLimit(1_000_000_000, per="1s")},
        policies={"authenticated": [("caller", "caller")]},
        capacity=CALLERS,
    )
    bucket = Bucket(1e9, 1e9)
    callers = [f"user:{n}" for n in range(CALLERS)]
    for caller in callers:
        assert gate.try_admit("authenticated", caller) and bucket.allow(caller)
    names: dict[str, object] = {
        "admit": gate.try_admit,
        "allow": bucket.allow,
        "key": gate.key(callers[0]),
        "caller": callers[0],
        "keys": [gate.key(caller) for caller in callers],
        "callers": callers,
        "n": iter(range(10**12)),
    }
    draw = f"[next(n) * 7919 % {CALLERS}]"
    subjects = {
        "callgate, one caller, prepared key": "admit('authenticated', key)",
        "callgate, one caller, string": "admit('authenticated', caller)",
        "dict and lock, one caller": "allow(caller)",
        f"callgate, {CALLERS:,} callers, prepared key": f"admit('authenticated', keys{draw})",
        f"dict and lock, {CALLERS:,} callers": f"allow(callers{draw})",
        f"(drawing one of {CALLERS:,} callers)": f"callers{draw}",
    }
    print(f"CPython {platform.python_version()}, {platform.machine()}, best of {ROUNDS}, ns")
    for name, statement in subjects.items():
        print(f"{best_ns(statement, names):8.0f}  {name}")


if __name__ == "__main__":
    main()
