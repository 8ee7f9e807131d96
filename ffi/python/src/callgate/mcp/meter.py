"""What the middlewares have in common: charge a call once, settle it once, never be the outage."""

from __future__ import annotations

import logging
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, Final, Literal

from callgate import Decision, Gate, Permit
from callgate.mcp.callers import Caller, CallerFunction, CallerResolver
from callgate.mcp.env import default_gate
from callgate.vocabulary import Outcome

logger = logging.getLogger("callgate.mcp")

OnError = Literal["admit", "refuse"]
Clock = Callable[[], int]

RECEIPTS: Final = "callgate.receipts"
"""Key of the ASGI scope under which the calls that this request has paid for are noted."""

UNNAMED_TOOL: Final = "\0unnamed"
"""Charged for a call that names no tool: no tool can have this name, and a key is never empty."""

_LOG_INTERVAL_S: Final = 60.0
_PER_TOOL: Final = frozenset({"tool", "caller_tool"})


@dataclass(frozen=True, slots=True)
class Observation:
    """One decision, for whoever measures: handed to the `observe` hook once per metered message.

    `gate_ns` is the time spent in callgate for it (reading the message, finding the caller,
    deciding), in nanoseconds. `source` is what a caller function gets. Neither belongs in a
    metric's label.
    """

    policy: str
    cost: int
    decision: Decision
    gate_ns: int
    source: Any


class Verdict:
    """The answer for one message, and the permits to settle when the call is over."""

    __slots__ = ("_meter", "_permits", "decision", "policy", "refused")

    def __init__(
        self,
        meter: Meter,
        *,
        refused: bool,
        policy: str = "",
        decision: Decision | None = None,
        permits: Sequence[Permit] = (),
    ) -> None:
        self._meter = meter
        self._permits = permits
        self.refused = refused
        self.policy = policy
        self.decision = decision
        """None where an internal error decided instead of the gate."""

    def settle(self, outcome: Outcome) -> None:
        """End the call, on whichever way out comes first; later ones change nothing."""
        permits, self._permits = self._permits, ()
        for permit in permits:
            self._meter.settle(permit, outcome)


class Receipt:
    """Calls paid for at one gate, so that an inner middleware on the same gate lets them through.

    Each inner call takes one. A message that turns out to hold more calls than were counted outside
    so has the surplus charged inside.
    """

    __slots__ = ("_left", "gate")

    def __init__(self, gate: Gate, calls: int) -> None:
        self.gate = gate
        self._left = calls

    def take(self) -> bool:
        if self._left <= 0:
            return False
        self._left -= 1
        return True


class _Running:
    """Marks the calls that a charged call makes within the server, which are not the client's."""

    __slots__ = ("gate", "is_over", "outer")

    def __init__(self, gate: Gate, outer: _Running | None) -> None:
        self.gate = gate
        self.outer = outer
        self.is_over = False


_running: ContextVar[_Running | None] = ContextVar("callgate_running", default=None)


class Meter:
    """One gate as a middleware uses it. `internal_errors` counts failures of the limiter itself."""

    def __init__(
        self,
        gate: Gate | None,
        *,
        caller: CallerFunction | None,
        on_error: OnError,
        clock: Clock | None,
        observe: Callable[[Observation], None] | None,
    ) -> None:
        if on_error not in ("admit", "refuse"):
            raise ValueError(f"on_error must be 'admit' or 'refuse', not {on_error!r}")
        self.gate = default_gate() if gate is None else gate
        self.internal_errors = 0
        self._resolver = CallerResolver(self.gate, caller)
        self._on_error = on_error
        self._clock = clock
        self._observe = observe
        self._next_log_s = 0.0
        self._tool_policies = {
            name
            for name, entries in self.gate.policies.items()
            if any(scope in _PER_TOOL for _, scope in entries)
        }

    async def decide(
        self,
        tools: Sequence[str | None],
        source: Any,
        scope: Mapping[str, Any] | None,
        *,
        spent_ns: int = 0,
    ) -> Verdict:
        """Charge one message that calls `tools`, all of them or none. Raises nothing of its own.

        `spent_ns` is gate time already spent on the message, for the observation.
        """
        started_ns = time.perf_counter_ns()
        try:
            caller = await self._resolver.resolve(source, scope)
            verdict = self._admit(caller, tools)
        except Exception as error:
            return self.failed(error)
        if self._observe is not None and verdict.decision is not None:
            gate_ns = spent_ns + time.perf_counter_ns() - started_ns
            self._report(Observation(caller.policy, len(tools), verdict.decision, gate_ns, source))
        return verdict

    def failed(self, error: Exception) -> Verdict:
        """The verdict after an internal error: it is counted, and logged once in a while."""
        self._count_error(error)
        return Verdict(self, refused=self._on_error == "refuse")

    def settle(self, permit: Permit, outcome: Outcome) -> None:
        try:
            self.gate.settle(permit, outcome, now_ns=self._now_ns())
        except Exception as error:
            self._count_error(error)

    def policy_limits(self, policy: str) -> dict[str, Any]:
        """The limits of a policy, by name and in order, as a refusal shows them."""
        return {name: self.gate.limits[name] for name, _ in self.gate.policies.get(policy, ())}

    def is_within_charged_call(self) -> bool:
        """Whether the server makes this call itself, in the course of one charged here already."""
        running = _running.get()
        while running is not None:
            if running.gate is self.gate and not running.is_over:
                return True
            running = running.outer
        return False

    def take_receipt(self, scope: Mapping[str, Any] | None) -> bool:
        """Whether an outer middleware on the same gate has charged this call already."""
        receipts = scope.get(RECEIPTS, ()) if scope is not None else ()
        return any(receipt.gate is self.gate and receipt.take() for receipt in receipts)

    @contextmanager
    def charged_call(self) -> Iterator[None]:
        """Around a charged call: calls that the server makes within it are part of it."""
        running = _Running(self.gate, _running.get())
        token = _running.set(running)
        try:
            yield
        finally:
            # A task that the call leaves behind keeps this context, and calls for its own account.
            running.is_over = True
            # A coroutine that is closed from elsewhere ends in another context; nothing to undo
            # there.
            with suppress(ValueError):
                _running.reset(token)

    def _now_ns(self) -> int | None:
        return None if self._clock is None else self._clock()

    def _admit(self, caller: Caller, tools: Sequence[str | None]) -> Verdict:
        groups: list[tuple[str | None, int]]
        if caller.policy in self._tool_policies:
            # Each tool's bucket is charged for its own calls: a batch over several tools takes one
            # admission per tool.
            groups = list(Counter(name or UNNAMED_TOOL for name in tools).items())
        else:
            groups = [(None, len(tools))]
        now_ns = self._now_ns()
        permits: list[Permit] = []
        decision: Decision | None = None
        try:
            for tool, cost in groups:
                decision = self.gate.try_admit(
                    caller.policy, caller.identity, tool, cost=cost, now_ns=now_ns
                )
                if not decision.admitted:
                    break
                if decision.permit is not None:
                    permits.append(decision.permit)
        except BaseException:
            self._take_back(permits)
            raise
        refused = decision is not None and not decision.admitted
        if refused:
            self._take_back(permits)
            permits = []
        return Verdict(
            self, refused=refused, policy=caller.policy, decision=decision, permits=permits
        )

    def _take_back(self, permits: Sequence[Permit]) -> None:
        for permit in permits:
            self.settle(permit, "cancelled")

    def _report(self, observation: Observation) -> None:
        assert self._observe is not None
        try:
            self._observe(observation)
        except Exception as error:
            self._count_error(error)

    def _count_error(self, error: Exception) -> None:
        self.internal_errors += 1
        now_s = time.monotonic()
        if now_s < self._next_log_s:
            return
        self._next_log_s = now_s + _LOG_INTERVAL_S
        # The type and the place, not the message: messages quote values, and values may be
        # identities.
        frames = traceback.extract_tb(error.__traceback__)
        where = f"{frames[-1].filename}:{frames[-1].lineno}" if frames else "unknown"
        answer = "refused" if self._on_error == "refuse" else "admitted"
        logger.error(
            "the call limiter failed (%s at %s); the call is %s; %d failures so far",
            type(error).__name__,
            where,
            answer,
            self.internal_errors,
        )
