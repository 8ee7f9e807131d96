"""callgate and its peers in Python, a subject in a process; README.md, one folder up, says how."""

from __future__ import annotations

import json
import random
import sys
import threading
import time
from collections.abc import Callable
from statistics import median
from typing import Any

from limits import RateLimitItemPerHour
from limits.storage import MemoryStorage
from limits.strategies import FixedWindowRateLimiter, MovingWindowRateLimiter

from callgate import Gate, RateLimit

PARTS = 10
PART = 1_000
UNLIMITED = 1_000_000_000


class Callgate:
    name = "callgate"

    def __init__(self, verdict: str, callers: list[str]) -> None:
        limit = RateLimit(UNLIMITED, per="1s") if verdict == "admit" else RateLimit(1, per="1h")
        self.gate = Gate(
            limits={"caller": limit},
            policies={"authenticated": [("caller", "caller")]},
            capacity=len(callers),
        )
        self.keys = [self.gate.key(caller) for caller in callers]

    def allows(self, key: Any) -> bool:
        return self.gate.try_admit("authenticated", key).admitted

    def run(self, keys: list[Any]) -> None:
        decide = self.gate.try_admit
        for key in keys:
            decide("authenticated", key)


class Bucket:
    """Token buckets in a dictionary, as written by hand."""

    name = "dict and lock"

    def __init__(self, verdict: str, callers: list[str]) -> None:
        self.rate, self.burst = (1e9, 1e9) if verdict == "admit" else (1 / 3600, 1.0)
        self.lock = threading.Lock()
        self.buckets: dict[str, tuple[float, float]] = {}
        self.keys = callers

    def allows(self, caller: str) -> bool:
        now = time.monotonic()
        with self.lock:
            tokens, then = self.buckets.get(caller, (self.burst, now))
            tokens = min(self.burst, tokens + (now - then) * self.rate)
            admitted = tokens >= 1
            self.buckets[caller] = (tokens - admitted, now)
            return admitted

    def run(self, keys: list[str]) -> None:
        decide = self.allows
        for key in keys:
            decide(key)


class Limits:
    strategy: Callable[[Any], Any]

    def __init__(self, verdict: str, callers: list[str]) -> None:
        self.item = RateLimitItemPerHour(UNLIMITED if verdict == "admit" else 1)
        self.limiter = self.strategy(MemoryStorage())
        self.keys = callers

    def allows(self, caller: str) -> bool:
        return bool(self.limiter.hit(self.item, caller))

    def run(self, keys: list[str]) -> None:
        decide, item = self.limiter.hit, self.item
        for key in keys:
            decide(item, key)


class FixedWindow(Limits):
    name = "limits, fixed window"
    strategy = FixedWindowRateLimiter


class MovingWindow(Limits):
    name = "limits, moving window"
    strategy = MovingWindowRateLimiter


SUBJECTS = (Callgate, Bucket, FixedWindow, MovingWindow)


def serve(subject: Any, verdict: str) -> None:
    """Takes a turn for each line of standard input, which seeds the draw of its callers."""
    for key in subject.keys:
        assert subject.allows(key), "a first call is refused"
    for key in subject.keys[:100]:
        assert subject.allows(key) is (verdict == "admit"), "a second call"
    print("ready", flush=True)
    for seed in sys.stdin:
        draw = random.Random(int(seed))
        drawn = [draw.choices(subject.keys, k=PART) for _ in range(PARTS)]
        print(median(time_part(subject, keys) for keys in drawn), flush=True)


def time_part(subject: Any, keys: list[Any]) -> float:
    started_ns = time.perf_counter_ns()
    subject.run(keys)
    return (time.perf_counter_ns() - started_ns) / PART


def main() -> None:
    if len(sys.argv) == 1:
        print(json.dumps([[subject.name, 1] for subject in SUBJECTS]))
        return
    name, _threads, count, verdict = sys.argv[1:]
    make = next(subject for subject in SUBJECTS if subject.name == name)
    subject = make(verdict, [f"user:{n}" for n in range(int(count))])
    serve(subject, verdict)


if __name__ == "__main__":
    main()
