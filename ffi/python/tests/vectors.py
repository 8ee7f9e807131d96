"""Runs decision vectors through the Python API.

    python vectors.py DIR

prints a JSON line for each *.jsonl file of DIR, and exits with 1 where a scenario fails. A scenario
that needs a kind of limit which is not built yet is listed as unsupported, never passed. The format
is described beside the vectors.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import cycle, islice
from pathlib import Path
from typing import Any

from callgate import ConcurrencyLimit, ConfigError, Decision, Gate, Permit, Quota, RateLimit

BUILT_KINDS = frozenset({"rate", "concurrency", "quota"})
BUILT_OPS = frozenset({"admit", "settle", "seed"})
SECOND_NS = 1_000_000_000
FIGURES = ("retry_after_ns", "limit", "remaining", "reset_after_ns")

Object = dict[str, Any]


@dataclass
class Summary:
    """What became of the scenarios of one file."""

    file: str
    passed: int = 0
    failed: int = 0
    first_difference: str | None = None
    unsupported_names: list[str] = field(default_factory=list)

    def to_json(self) -> str:
        """The line that is printed."""
        return json.dumps(
            {
                "surface": "python",
                "file": self.file,
                "passed": self.passed,
                "failed": self.failed,
                "unsupported": len(self.unsupported_names),
                "first_difference": self.first_difference,
                "unsupported_names": self.unsupported_names,
            }
        )


def files_of(directory: Path) -> list[Path]:
    """The files of a folder of vectors, in order."""
    return sorted(directory.glob("*.jsonl"))


def scenarios_of(path: Path) -> Iterator[Object]:
    """The scenarios of a file, one a line."""
    for line in path.read_text(encoding="utf-8").splitlines():
        if line.strip():
            yield json.loads(line)


def run_file(path: Path) -> Summary:
    """Runs all scenarios of a file."""
    summary = Summary(path.name)
    for scenario in scenarios_of(path):
        if not is_supported(scenario):
            summary.unsupported_names.append(scenario["name"])
            continue
        difference = run_scenario(scenario)
        if difference is None:
            summary.passed += 1
            continue
        summary.failed += 1
        if summary.first_difference is None:
            summary.first_difference = f"{scenario['name']}: {difference}"
    return summary


def is_supported(scenario: Object) -> bool:
    """Whether the scenario needs only what is built."""
    kinds = {limit["kind"] for limit in scenario["limits"]}
    ops = {step["op"] for step in scenario.get("steps", ())}
    return kinds <= BUILT_KINDS and ops <= BUILT_OPS


def run_scenario(scenario: Object) -> str | None:
    """Runs a scenario; returns its first difference, or None."""
    wanted = scenario.get("config_error")
    try:
        gate = _gate_of(scenario)
    except ConfigError as error:
        if error.field == wanted:
            return None
        return f"making the gate blames {error.field!r} ({error}), expected {wanted!r}"
    if wanted is not None:
        return f"making the gate succeeds, expected an error that blames {wanted!r}"
    return _Run(gate, int(scenario["unix_base_ns"])).run(scenario["steps"])


def _gate_of(scenario: Object) -> Gate:
    limits = {str(n): _limit_of(limit) for n, limit in enumerate(scenario["limits"])}
    policies = {
        name: [(limit, scope.lower()) for limit, scope in rules]
        for name, rules in scenario["policies"].items()
    }
    steps = scenario.get("steps", ())
    callers = {(step.get("caller"), step.get("tool")) for step in steps}
    return Gate(
        limits=limits,
        policies=policies,
        capacity=64 + len(callers),
        memory="private",
        secret=bytes(range(16)),
    )


def _limit_of(limit: Object) -> RateLimit | ConcurrencyLimit | Quota:
    numbers = {name: int(value) for name, value in limit.items() if name != "kind"}
    get = numbers.get
    if limit["kind"] == "rate":
        return RateLimit(get("count", 0), per=get("period_ns", 0), burst=get("burst", 0))
    if limit["kind"] == "concurrency":
        return ConcurrencyLimit(
            get("max_in_flight", 0),
            lease=get("lease_ns", 0),
            reject_trip=get("reject_trip", 0),
            failure_trip=get("failure_trip", 0),
            cooldown=get("cooldown_ns", 0),
            half_open_probes=get("half_open_probes", 0),
        )
    return Quota(
        get("limit", 0),
        per=get("period_s", 0) * SECOND_NS,
        anchor_unix_s=get("anchor_unix_s", 0),
        must_seed=bool(get("must_seed", 0)),
    )


class _Run:
    def __init__(self, gate: Gate, unix_base_ns: int) -> None:
        self._gate = gate
        self._unix_base_ns = unix_base_ns
        self._permits: dict[str, Permit | None] = {}

    def run(self, steps: list[Object]) -> str | None:
        for n, step in enumerate(steps):
            run_step = {"admit": self._admit, "settle": self._settle, "seed": self._seed}
            difference = run_step[step["op"]](step)
            if difference is not None:
                return f"step {n}: {difference}"
        return None

    def _admit(self, step: Object) -> str | None:
        policy = step.get("policy", "default")
        caller = self._gate.key(step.get("caller", "alice"))
        tool = step.get("tool") or None
        cost, reserve = int(step.get("cost", 1)), int(step.get("reserve", 0))
        admitted, decision = 0, None
        for now_ns in _times_of(step):
            unix_ns = self._unix_base_ns + now_ns
            decision = self._gate.try_admit(policy, caller, tool, cost, reserve, now_ns, unix_ns)
            admitted += decision.admitted
            if "permit" in step:
                self._permits[step["permit"]] = decision.permit
        assert decision is not None, "a step runs at least once"
        expected = step["expect"]
        if "last" not in expected:
            return _difference(decision, expected)
        if admitted != int(expected["admitted"]):
            return f"admitted {admitted}, expected {expected['admitted']}"
        return _difference(decision, expected["last"])

    def _settle(self, step: Object) -> str | None:
        now_ns = int(step["at"])
        permit = self._permits[step["permit"]]
        # A refused call has no permit in Python. Elsewhere it has an empty one, settled already.
        status: str = "already_settled"
        if permit is not None:
            used, unix_ns = int(step.get("actual", 0)), self._unix_base_ns + now_ns
            status = self._gate.settle(permit, step["outcome"].lower(), used, now_ns, unix_ns)
        expected = step["expect"]["status"].lower()
        return None if status == expected else f"status {status!r}, expected {expected!r}"

    def _seed(self, step: Object) -> str | None:
        now_ns = int(step["at"])
        seeded = self._gate.seed(
            str(step["limit"]),
            step.get("caller", "alice"),
            int(step["used"]),
            now_ns=now_ns,
            unix_ns=self._unix_base_ns + now_ns,
        )
        expected = step["expect"]["seeded"]
        return None if seeded == expected else f"seeded {seeded}, expected {expected}"


def _times_of(step: Object) -> Iterator[int]:
    repeat = int(step.get("repeat", 1))
    if "ats" in step:
        return islice(cycle(map(int, step["ats"])), repeat)
    at_ns, every_ns = int(step["at"]), int(step.get("every_ns", 0))
    return (at_ns + n * every_ns for n in range(repeat))


def _difference(decision: Decision, expected: Object) -> str | None:
    found: Object = {
        "verdict": "ADMITTED" if decision.admitted else "REFUSED",
        "reason": decision.reason.upper() if decision.reason else None,
        "by": decision.by,
    }
    found.update({name: str(getattr(decision, name)) for name in FIGURES})
    unknown = expected.keys() - found.keys()
    if unknown:
        return f"expects what this runner doesn't know: {sorted(unknown)}"
    for name, value in expected.items():
        if found[name] != value:
            return f"{name} {found[name]}, expected {value}"
    return None


def main(arguments: list[str]) -> int:
    """Runs the folder that the command line names."""
    if len(arguments) != 1:
        print(__doc__, file=sys.stderr)
        return 2
    files = files_of(Path(arguments[0]))
    if not files:
        print(f"no *.jsonl files in {arguments[0]}", file=sys.stderr)
        return 2
    failed = 0
    for path in files:
        summary = run_file(path)
        failed += summary.failed
        print(summary.to_json(), flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
