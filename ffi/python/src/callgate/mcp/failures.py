"""Counts how often the limiter itself has failed, by gate: for metrics."""

from __future__ import annotations

import threading
from weakref import WeakKeyDictionary

from callgate import Gate


class Failures:
    """Failures at one gate, whichever middleware they came from."""

    __slots__ = ("_lock", "count")

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.count = 0

    def add(self) -> None:
        with self._lock:
            self.count += 1


_by_gate: WeakKeyDictionary[Gate, Failures] = WeakKeyDictionary()
_by_gate_lock = threading.Lock()


def failures_of(gate: Gate) -> Failures:
    with _by_gate_lock:
        return _by_gate.setdefault(gate, Failures())


def internal_errors(gate: Gate) -> int:
    """How often the middlewares on `gate` have failed themselves, in this process."""
    return failures_of(gate).count
