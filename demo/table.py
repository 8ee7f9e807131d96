"""The table that the demo prints: a line for each caller, and whether it is what it should be."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

TIMEOUT_S = 60


@dataclass
class Line:
    """One line of the table: what a caller sent, and what became of it."""

    caller: str
    label: str
    """The name under which the server keeps this caller's times."""
    expect: dict[str, int]
    """The outcomes that DESIGN.md demands, by name: `admitted`, `401`, or a refusal's reason."""
    wait_s: int | None = None
    """What the first refusal has to say, less the seconds that have passed since the first call."""
    is_time_standing: bool = False
    """Whether no second passes: the wait has to be exact."""
    sent: int = 0
    outcomes: Counter[str] = field(default_factory=Counter)
    first_retry_after_s: float | None = None

    def count(self, outcome: str, calls: int = 1, retry_after_s: float | None = None) -> None:
        self.sent += calls
        self.outcomes[outcome] += calls
        if self.first_retry_after_s is None:
            self.first_retry_after_s = retry_after_s

    @property
    def is_right(self) -> bool:
        if self.wait_s is None or self.first_retry_after_s is None or self.is_time_standing:
            is_wait_right = self.wait_s == self.first_retry_after_s
        else:
            is_wait_right = 0 <= self.wait_s - self.first_retry_after_s <= TIMEOUT_S
        return is_wait_right and dict(self.outcomes) == self.expect


COLUMNS = "{:<22}{:>6}{:>10}  {:<32}{:>12}{:>9}{:>9}   {}"


def say(text: str) -> None:
    print(text, flush=True)


def percentile(values: list[int], percent: int) -> str:
    """In microseconds, of nanoseconds: the value that so many percent do not exceed."""
    if not values:
        return "-"
    rank = -(-len(values) * percent // 100)
    return f"{sorted(values)[rank - 1] / 1_000:.0f} us"


def report(lines: list[Line], stats: dict[str, Any]) -> None:
    head = ("caller", "sent", "admitted", "refused, by reason", "Retry-After", "p50", "p99", "")
    say("\n" + COLUMNS.format(*head))
    for line in lines:
        refused = {name: n for name, n in line.outcomes.items() if name != "admitted"}
        wait = "-" if line.first_retry_after_s is None else f"{line.first_retry_after_s:.0f} s"
        times = stats["gate_ns"].get(line.label, [])
        cells = (
            line.caller,
            line.sent,
            line.outcomes["admitted"],
            ", ".join(f"{name} {n}" for name, n in refused.items()) or "-",
            wait,
            percentile(times, 50),
            percentile(times, 99),
            "ok" if line.is_right else f"WRONG, should be {line.expect}, {line.wait_s} s",
        )
        say(COLUMNS.format(*cells))
    say("p50 and p99: time spent in callgate for one message, measured inside the server.")
