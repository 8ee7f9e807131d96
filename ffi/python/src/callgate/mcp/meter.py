"""What the middlewares have in common: charge a call once, settle it once, never be the outage."""

from __future__ import annotations

import logging
import time
import traceback
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence, Set
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from typing import Any, Final, cast

from callgate import Decision, Gate, Key, Permit, Quota, Seeder
from callgate.integers import U64_MAX
from callgate.loops import is_in_asyncio, running_trio
from callgate.mcp.callers import Caller, CallerFunction, CallerResolver
from callgate.mcp.charge import RECEIPTS, Charge, Hold, Share
from callgate.mcp.choice import Charged, PolicyChoice, PolicyChooser
from callgate.mcp.env import default_gate
from callgate.mcp.message import Entry
from callgate.mcp.options import (
    Clock,
    Observation,
    Observe,
    OnError,
    check_clock,
    check_function,
    check_reserve,
    check_seeder,
    check_str,
)
from callgate.vocabulary import Outcome

logger = logging.getLogger("callgate.mcp")

_LOG_INTERVAL_S: Final = 60.0


class Verdict:
    """The answer for one message, and the charge to settle when the call is over."""

    __slots__ = ("cost", "decision", "hold", "policy", "refused")

    def __init__(
        self,
        charge: Charge,
        *,
        refused: bool,
        policy: str = "",
        cost: int = 0,
        decision: Decision | None = None,
    ) -> None:
        self.hold = charge.hold()
        self.refused = refused
        self.policy = policy
        """The policy that refused, or the last one charged."""
        self.cost = cost
        """How many calls `decision` is about."""
        self.decision = decision
        """None where an internal error decided instead of the gate, or nothing was asked of it."""

    def settle(self, outcome: Outcome) -> None:
        """End the call, on whichever way out comes first; later ones change nothing."""
        self.hold.settle(outcome)


class _Running:
    """Marks the calls that a charged call makes within the server, which are not the client's."""

    __slots__ = ("gate", "is_over", "outer")

    def __init__(self, gate: Gate, outer: _Running | None) -> None:
        self.gate = gate
        self.outer = outer
        self.is_over = False


_running: ContextVar[_Running | None] = ContextVar("callgate_running", default=None)


class Meter:
    """One gate as a middleware uses it; `callgate.mcp.MeterOptions` says what the options are.

    `internal_errors` counts failures of the limiter itself.
    """

    def __init__(
        self,
        gate: Gate | None = None,
        *,
        caller: CallerFunction | None = None,
        tools: Mapping[str, PolicyChoice] | None = None,
        methods: Mapping[str, PolicyChoice] | None = None,
        continuations: PolicyChoice | None = None,
        reserve: int = 0,
        seeder: Seeder | None = None,
        usage_meta: str | None = None,
        on_error: OnError = "admit",
        clock: Clock | None = None,
        wall_clock: Clock | None = None,
        observe: Observe | None = None,
    ) -> None:
        if on_error not in ("admit", "refuse"):
            raise ValueError(f"on_error must be 'admit' or 'refuse', not {on_error!r}")
        check_function("caller", caller)
        check_function("observe", observe)
        check_str("usage_meta", usage_meta)
        if wall_clock is not None and clock is None:
            raise ValueError("wall_clock goes with a clock: a call has both times from one source")
        check_clock("clock", clock)
        check_clock("wall_clock", wall_clock)
        self.gate = default_gate() if gate is None else gate
        check_seeder(seeder, self.gate)
        self.usage_meta = usage_meta
        self.internal_errors = 0
        self._resolver = CallerResolver(self.gate, caller)
        self._chooser = PolicyChooser(
            self.gate, tools=tools, methods=methods, continuations=continuations
        )
        self._reserve = check_reserve(reserve)
        self._seeder = seeder
        self._on_error = on_error
        self._clock = clock
        self._wall_clock = time.time_ns if wall_clock is None else wall_clock
        self._observe = observe
        self._next_log_s = 0.0
        self._with_quota = {
            name
            for name in self.gate.policies
            if any(isinstance(limit, Quota) for limit in self.policy_limits(name).values())
        }

    @property
    def methods(self) -> Set[str]:
        """The metered methods: `tools/call`, and those with a policy of their own."""
        return self._chooser.methods

    async def decide(
        self,
        entries: Sequence[Entry],
        source: Any,
        scope: Mapping[str, Any] | None,
        *,
        spent_ns: int = 0,
    ) -> Verdict:
        """Charge one message of these entries, all of them or none. Raises nothing of its own.

        `spent_ns` is gate time already spent on the message, for the observation.
        """
        started_ns = time.perf_counter_ns()
        try:
            caller = await self._resolver.resolve(source, scope)
            verdict = await self._admit(caller, entries)
        except Exception as error:
            return self.failed(error)
        if self._observe is not None and verdict.decision is not None:
            gate_ns = spent_ns + time.perf_counter_ns() - started_ns
            seen = Observation(verdict.policy, len(entries), verdict.decision, gate_ns, source)
            self._report(self._observe, seen, verdict)
        return verdict

    def failed(self, error: Exception) -> Verdict:
        """The verdict after an internal error: it is counted, and logged once in a while."""
        self._count_error(error)
        return Verdict(Charge(self._settle), refused=self._on_error == "refuse")

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

    def take_receipt(self, scope: Mapping[str, Any] | None) -> Hold | None:
        """A hold on what an outer middleware on the same gate has charged for this call already."""
        for receipt in scope.get(RECEIPTS, ()) if scope is not None else ():
            hold: Hold | None = receipt.take() if receipt.gate is self.gate else None
            if hold is not None:
                return hold
        return None

    @contextmanager
    def charged_call(self, charge: Charge) -> Iterator[None]:
        """Around a charged call: calls that the server makes within it are part of it."""
        running = _Running(self.gate, _running.get())
        token = _running.set(running)
        try:
            with charge.usage.current():
                yield
        finally:
            # A task that the call leaves behind keeps this context, and calls for its own account.
            running.is_over = True
            # A coroutine that is closed from elsewhere ends in another context; nothing to undo
            # there.
            with suppress(ValueError):
                _running.reset(token)

    async def _admit(self, caller: Caller, entries: Sequence[Entry]) -> Verdict:
        # One admission for each policy and, where it keeps state by tool, for each tool: every
        # limit is charged for its own calls. Each admission takes a place, so that a batch takes
        # one, or where its tools differ in their policy or in the state of a limit kept by tool,
        # one for each: with more of them than the server has places it is never admitted.
        counts = Counter(self._chooser.charged(entry, caller) for entry in entries)
        counts.pop(None, None)
        now_ns, unix_ns = self._times()
        shares: list[Share] = []
        policy, cost, decision = caller.policy, 0, None
        try:
            for charged, cost in counts.items():
                assert charged is not None
                policy, reserve = charged.policy, min(cost * self._reserve, U64_MAX)
                decision = await self._try_admit(charged, cost, reserve, now_ns, unix_ns)
                if not decision.admitted:
                    break
                if decision.permit is not None:
                    shares.append(Share(decision.permit, reserve, policy in self._with_quota))
        except BaseException:
            self._take_back(shares)
            raise
        refused = decision is not None and not decision.admitted
        if refused:
            self._take_back(shares)
            shares = []
        charge = Charge(self._settle, shares)
        return Verdict(charge, refused=refused, policy=policy, cost=cost, decision=decision)

    async def _try_admit(
        self, charged: Charged, cost: int, reserve: int, now_ns: int | None, unix_ns: int | None
    ) -> Decision:
        identity = charged.identity
        # A ledger can't be asked about a key.
        if self._seeder is not None and not isinstance(identity, Key):
            admit = (charged.policy, identity, charged.tool, cost, reserve, now_ns, unix_ns)
            if is_in_asyncio() or self._seeder.is_async:
                return await self._seeder.try_admit_async(*admit)
            trio = running_trio()
            if trio is not None:
                return cast(Decision, await trio.to_thread.run_sync(self._seeder.try_admit, *admit))
            return self._seeder.try_admit(*admit)
        return self.gate.try_admit(
            charged.policy,
            identity,
            charged.tool,
            cost=cost,
            reserve=reserve,
            now_ns=now_ns,
            unix_ns=unix_ns,
        )

    def _take_back(self, shares: Sequence[Share]) -> None:
        for share in shares:
            self._settle(share.permit, "cancelled", 0)

    def _settle(self, permit: Permit, outcome: Outcome, used: int) -> None:
        try:
            now_ns, unix_ns = self._times()
            self.gate.settle(permit, outcome, used=used, now_ns=now_ns, unix_ns=unix_ns)
        except Exception as error:
            self._count_error(error)

    def _times(self) -> tuple[int | None, int | None]:
        """None, where the engine is to read its own clocks."""
        return (None, None) if self._clock is None else (self._clock(), self._wall_clock())

    def _report(self, observe: Observe, seen: Observation, verdict: Verdict) -> None:
        try:
            observe(seen)
        except Exception as error:
            self._count_error(error)
        except BaseException:
            verdict.settle("cancelled")
            raise

    def _count_error(self, error: Exception) -> None:
        self.internal_errors += 1
        self.gate.count_internal_error()
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
