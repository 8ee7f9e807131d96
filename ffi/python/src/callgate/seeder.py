"""Seeder: after a restart, what callers have used before is loaded from a ledger when they call."""

from __future__ import annotations

import asyncio
import contextvars
import inspect
import logging
import threading
import time
from collections.abc import Awaitable, Callable
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal, TypeAlias, cast

from callgate.call import Call
from callgate.durations import parse_duration
from callgate.errors import CallError, ConfigError, Refused
from callgate.integers import U64_MAX, integer
from callgate.limits import Quota
from callgate.loops import is_in_asyncio

if TYPE_CHECKING:
    from callgate._engine import Decision, Key
    from callgate.gate import Gate

Identity: TypeAlias = str | bytes
Load: TypeAlias = Callable[[Identity], int] | Callable[[Identity], Awaitable[int]]
OnError: TypeAlias = Literal["refuse", "zero"]

_ROUNDS: Final = 3
"""A load is tried anew so often where its window ends meanwhile."""

_log: Final = logging.getLogger("callgate")


@dataclass(frozen=True, slots=True)
class _Attempt:
    """A call to be decided."""

    policy: str
    caller: Identity | None
    tool: Identity | Key | None
    cost: int
    reserve: int
    now_ns: int | None
    unix_ns: int | None


@dataclass(frozen=True, slots=True)
class _Flight:
    """A load on its way: one for each caller. Who comes meanwhile waits for it."""

    identity: bytes
    caller: Identity
    landed: Future[None]
    ends_unix_ns: int | None
    """When the window ends that is asked about, where that is known."""
    loop: asyncio.AbstractEventLoop | None
    """Where the load is a task, the event loop that runs it."""

    @property
    def is_lost(self) -> bool:
        """It will never land: its event loop was closed without ending its tasks."""
        return self.loop is not None and self.loop.is_closed()


class Seeder:
    """Decides calls under a quota that must be seeded, and seeds it when a caller first calls.

    seeder = Seeder(gate, "tokens", load=ledger.used_today)
    decision = seeder.try_admit("authenticated", caller="user:1001")
    decision = await seeder.try_admit_async("authenticated", caller="user:1001")

    gate         a Gate
    limit        the name of one of its quotas, of must_seed=True, kept by "caller" in all policies
    load         load(caller) -> units used in the present window, 0 to 2^64-1; `def` or
                 `async def`. One call of a caller has it called at a time, others of that caller
                 wait for it
    on_error     where it fails: "refuse": the refusal ("unseeded") stands, and the caller is not
                 loaded again for `retry_after`; "zero": nothing is taken to have been used. Either
                 way the error is logged under "callgate", and counted in `load_errors`
    retry_after  a str such as "5s", or an int of nanoseconds

    Raises ConfigError where something is out of its range. Every method may be called from any
    thread; a load that is cancelled with its call goes on for those who wait for it.
    """

    def __init__(
        self,
        gate: Gate,
        limit: str,
        load: Load,
        *,
        on_error: OnError = "refuse",
        retry_after: str | int = "5s",
    ) -> None:
        if not callable(load):
            raise TypeError(f"load must be a function of a caller, not {type(load).__name__}")
        if on_error not in ("refuse", "zero"):
            raise ConfigError(f"on_error must be 'refuse' or 'zero', not {on_error!r}", "on_error")
        _check_limit(gate, limit)
        self._gate = gate
        self._limit = limit
        self._load = load
        self._is_async = _is_async(load)
        self._on_error: OnError = on_error
        self._rest_ns = _retry_after_ns(retry_after)
        self._lock = threading.Lock()
        self._flights: dict[bytes, _Flight] = {}
        self._resting: dict[bytes, int] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._load_errors = 0

    @property
    def gate(self) -> Gate:
        """The gate that decides."""
        return self._gate

    @property
    def is_async(self) -> bool:
        """Whether `load` is async."""
        return self._is_async

    @property
    def load_errors(self) -> int:
        """How many loads failed."""
        return self._load_errors

    def try_admit(
        self,
        policy: str,
        caller: Identity | None = None,
        tool: Identity | Key | None = None,
        cost: int = 1,
        reserve: int = 0,
        now_ns: int | None = None,
        unix_ns: int | None = None,
    ) -> Decision:
        """As `Gate.try_admit`; blocks while the caller is loaded. Not for a load that is async."""
        if self._is_async:
            raise TypeError("load is async: await try_admit_async() instead of try_admit()")
        attempt = self._attempt(policy, caller, tool, cost, reserve, now_ns, unix_ns)
        decision = self._decide(attempt)
        for _ in range(_ROUNDS):
            if not self._is_waiting(decision):
                break
            decision, flight, is_leader = self._join(attempt, decision)
            if flight is None:
                break
            if is_leader:
                self._lead(flight, attempt)
            else:
                flight.landed.result()
            decision = self._decide(attempt)
        return decision

    async def try_admit_async(
        self,
        policy: str,
        caller: Identity | None = None,
        tool: Identity | Key | None = None,
        cost: int = 1,
        reserve: int = 0,
        now_ns: int | None = None,
        unix_ns: int | None = None,
    ) -> Decision:
        """As `Gate.try_admit`; waits while the caller is loaded. A load that is not async runs in a
        thread.

        Raises RuntimeError where there is something to load, and no task of asyncio to do so.
        """
        attempt = self._attempt(policy, caller, tool, cost, reserve, now_ns, unix_ns)
        decision = self._decide(attempt)
        for _ in range(_ROUNDS):
            if not self._is_waiting(decision):
                break
            loop = _asyncio_loop()
            decision, flight, is_leader = self._join(attempt, decision, loop)
            if flight is None:
                break
            if is_leader:
                self._launch(flight, attempt, loop)
            await _until(flight.landed)
            decision = self._decide(attempt)
        return decision

    def admit(
        self,
        policy: str,
        caller: Identity | None = None,
        tool: Identity | Key | None = None,
        cost: int = 1,
        reserve: int = 0,
        now_ns: int | None = None,
        unix_ns: int | None = None,
    ) -> Call:
        """As `Gate.admit`: a call for a `with` block. Raises Refused where it may not run."""
        decision = self.try_admit(policy, caller, tool, cost, reserve, now_ns, unix_ns)
        return _admitted(self._gate, decision, reserve, now_ns, unix_ns)

    async def admit_async(
        self,
        policy: str,
        caller: Identity | None = None,
        tool: Identity | Key | None = None,
        cost: int = 1,
        reserve: int = 0,
        now_ns: int | None = None,
        unix_ns: int | None = None,
    ) -> Call:
        """The same in async code: `with await seeder.admit_async(...) as call`."""
        decision = await self.try_admit_async(policy, caller, tool, cost, reserve, now_ns, unix_ns)
        return _admitted(self._gate, decision, reserve, now_ns, unix_ns)

    def _attempt(
        self,
        policy: str,
        caller: Identity | None,
        tool: Identity | Key | None,
        cost: int,
        reserve: int,
        now_ns: int | None,
        unix_ns: int | None,
    ) -> _Attempt:
        if caller is not None and not isinstance(caller, (str, bytes)):
            raise TypeError(
                "caller must be a str or bytes, which the ledger is asked about, not"
                f" {type(caller).__name__}"
            )
        return _Attempt(policy, caller, tool, cost, reserve, now_ns, unix_ns)

    def _decide(self, a: _Attempt) -> Decision:
        return self._gate.try_admit(
            a.policy, a.caller, a.tool, a.cost, a.reserve, a.now_ns, a.unix_ns
        )

    def _is_waiting(self, decision: Decision) -> bool:
        return decision.reason == "unseeded" and decision.by == self._limit

    def _join(
        self,
        attempt: _Attempt,
        decision: Decision,
        loop: asyncio.AbstractEventLoop | None = None,
    ) -> tuple[Decision, _Flight | None, bool]:
        """The flight of the caller's load, and whether this call leads it; None where there is
        nothing to load. It is decided anew: another load may have landed since."""
        caller = attempt.caller
        assert caller is not None, "a limit that is kept by caller had one"
        identity = caller.encode() if isinstance(caller, str) else caller
        with self._lock:
            joined = self._flights.get(identity)
            if joined is not None and not joined.is_lost:
                return decision, joined, False
            if joined is not None:
                del self._flights[identity]
                joined.landed.set_result(None)
            if self._is_resting(identity, attempt):
                return decision, None, False
            began_ns = time.time_ns()
            decision = self._decide(attempt)
            if not self._is_waiting(decision):
                return decision, None, False
            ends = None if attempt.unix_ns is not None else began_ns + decision.reset_after_ns
            flight = _Flight(identity, caller, Future(), ends, loop if self._is_async else None)
            self._flights[identity] = flight
            return decision, flight, True

    def _is_resting(self, identity: bytes, attempt: _Attempt) -> bool:
        until_ns = self._resting.get(identity)
        return until_ns is not None and _clock_ns(attempt) < until_ns

    def _lead(self, flight: _Flight, attempt: _Attempt) -> None:
        try:
            load = cast(Callable[[Identity], int], self._load)
            try:
                used = _units(load(flight.caller))
            except Exception:
                self._fail(flight, attempt)
            else:
                self._seed(flight, attempt, used)
        finally:
            self._land(flight)

    async def _lead_async(self, flight: _Flight, attempt: _Attempt) -> None:
        load = cast(Callable[[Identity], Awaitable[int]], self._load)
        try:
            used = _units(await load(flight.caller))
        except Exception:
            self._fail(flight, attempt)
        else:
            self._seed(flight, attempt, used)

    def _launch(self, flight: _Flight, attempt: _Attempt, loop: asyncio.AbstractEventLoop) -> None:
        """Starts the load beside the call, which may be cancelled while others wait for it."""
        try:
            self._start(flight, attempt, loop).add_done_callback(lambda _: self._land(flight))
        except BaseException:
            self._land(flight)
            raise

    def _start(
        self, flight: _Flight, attempt: _Attempt, loop: asyncio.AbstractEventLoop
    ) -> asyncio.Future[None]:
        """What is done when the load has ended, or was dropped before it began: a task that is
        cancelled at once never begins, nor does what waits in an executor that is shut down."""
        if not self._is_async:
            context = contextvars.copy_context()
            return loop.run_in_executor(None, context.run, self._lead, flight, attempt)
        load = self._lead_async(flight, attempt)
        try:
            task = loop.create_task(load)
        except BaseException:
            load.close()
            raise
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    def _land(self, flight: _Flight) -> None:
        with self._lock:
            if self._flights.get(flight.identity) is not flight:
                return  # It has landed.
            del self._flights[flight.identity]
        flight.landed.set_result(None)

    def _seed(self, flight: _Flight, attempt: _Attempt, used: int) -> None:
        if flight.ends_unix_ns is not None and time.time_ns() >= flight.ends_unix_ns:
            return  # What was loaded is yesterday's.
        now_ns, unix_ns = attempt.now_ns, attempt.unix_ns
        try:
            self._gate.seed(self._limit, flight.caller, used, now_ns=now_ns, unix_ns=unix_ns)
        except CallError:  # There is no place for the caller's state.
            self._rest(flight, attempt)

    def _fail(self, flight: _Flight, attempt: _Attempt) -> None:
        _log.warning("loading what was used of quota %r failed", self._limit, exc_info=True)
        with self._lock:
            self._load_errors += 1
        if self._on_error == "zero":
            self._seed(flight, attempt, 0)
        else:
            self._rest(flight, attempt)

    def _rest(self, flight: _Flight, attempt: _Attempt) -> None:
        now_ns = _clock_ns(attempt)
        with self._lock:
            self._resting.pop(flight.identity, None)
            self._resting[flight.identity] = now_ns + self._rest_ns
            # The oldest come first; a flood of callers must not fill the memory.
            while self._resting:
                oldest, until_ns = next(iter(self._resting.items()))
                if until_ns > now_ns and len(self._resting) <= self._gate.capacity:
                    break
                del self._resting[oldest]


def _check_limit(gate: Gate, limit: str) -> None:
    if not isinstance(limit, str):
        raise TypeError(f"limit must be a str, not {type(limit).__name__}")
    quota = gate.limits.get(limit)
    if not isinstance(quota, Quota) or not quota.must_seed:
        raise ConfigError(
            f"limit {limit!r} must be a Quota of the gate with must_seed=True, not {quota!r}",
            "limit",
            limit=limit,
        )
    for policy, rules in gate.policies.items():
        for name, scope in rules:
            if name == limit and scope != "caller":
                raise ConfigError(
                    f"limit {limit!r} must be kept by 'caller' in all policies, since callers are"
                    f" loaded; policy {policy!r} keeps it by {scope!r}",
                    "scope",
                    limit=limit,
                    policy=policy,
                )


def _is_async(load: Load) -> bool:
    if inspect.iscoroutinefunction(load):
        return True
    return inspect.iscoroutinefunction(type(load).__call__)  # an object that is called


def _retry_after_ns(retry_after: str | int) -> int:
    if isinstance(retry_after, str):
        try:
            return parse_duration(retry_after)
        except ValueError as error:
            raise ConfigError(f"retry_after: {error}", "retry_after") from None
    ns = integer("retry_after", retry_after, "a str such as '5s' or an int of nanoseconds")
    if ns < 0:
        raise ConfigError("retry_after must be 0 or more ns", "retry_after")
    return ns


def _units(loaded: object) -> int:
    if inspect.iscoroutine(loaded):
        loaded.close()
        raise TypeError("load returned a coroutine: it must be declared with async def")
    used = integer("what load returns", loaded)
    if not 0 <= used <= U64_MAX:
        raise ValueError(f"what load returns must be 0 to 2^64-1 units, not {used}")
    return used


def _clock_ns(attempt: _Attempt) -> int:
    return time.monotonic_ns() if attempt.now_ns is None else attempt.now_ns


def _asyncio_loop() -> asyncio.AbstractEventLoop:
    if not is_in_asyncio():
        raise RuntimeError(
            "try_admit_async() needs asyncio while a caller is loaded, and this is no task of"
            " asyncio's: call try_admit() in a thread instead"
        )
    return asyncio.get_running_loop()


async def _until(landed: Future[None]) -> None:
    """Waits for a flight; being cancelled ends the waiting, and nothing else."""
    loop = asyncio.get_running_loop()
    woken = loop.create_future()

    def end() -> None:
        if not woken.done():
            woken.set_result(None)

    def wake(_: Future[None]) -> None:
        with suppress(RuntimeError):  # The loop is closed: nobody waits in it.
            loop.call_soon_threadsafe(end)

    landed.add_done_callback(wake)
    await woken


def _admitted(
    gate: Gate, decision: Decision, reserve: int, now_ns: int | None, unix_ns: int | None
) -> Call:
    if not decision:
        raise Refused(decision)
    return Call(gate, decision, reserve, now_ns, unix_ns)
