"""Call: an admitted call, settled at the end of a `with` block."""

from __future__ import annotations

import os
from types import TracebackType
from typing import TYPE_CHECKING, final

from callgate.errors import CallError
from callgate.integers import U64_MAX, integer
from callgate.vocabulary import Outcome, Settled

if TYPE_CHECKING:
    from callgate._engine import Decision
    from callgate.gate import Gate

_forks = 0
"""How many forks this process is away from the first one. The system call that tells processes
apart would cost as much as a decision."""


def _count_fork() -> None:
    global _forks
    _forks += 1


os.register_at_fork(after_in_child=_count_fork)


@final
class Call:
    """An admitted call, from `Gate.admit`. It is settled once, at the end of its `with` or
    `async with` block:

    - "failure" where an `Exception` leaves the block;
    - "abandoned" where another exception does: `asyncio.CancelledError` (of a client that went
      away), `GeneratorExit`, `KeyboardInterrupt`;
    - "success" otherwise;
    - not again where `settle` or `cancel` did so before.

    A call that nobody settles, as where its block is never entered, is settled as "abandoned" when
    the last reference to it is gone: its place is given back, and it keeps what it was charged.

    Nothing in it blocks: a plain `with` is right in async code, too. A process that is forked
    within the block has a copy; only the process that was admitted settles by itself.
    """

    __slots__ = ("_decision", "_forks", "_gate", "_is_settled", "_now_ns", "_unix_ns", "_used")

    def __init__(
        self,
        gate: Gate,
        decision: Decision,
        reserve: int,
        now_ns: int | None,
        unix_ns: int | None,
    ) -> None:
        """Made by `Gate.admit`."""
        self._gate = gate
        self._decision = decision
        self._now_ns = now_ns
        self._unix_ns = unix_ns
        self._used = reserve
        self._forks = _forks
        self._is_settled = False

    @property
    def decision(self) -> Decision:
        """What was decided: admitted, and what is left."""
        return self._decision

    def used(self, units: int) -> None:
        """Before it is settled: how many units the call uses up of its quotas, 0 to 2^64-1.

        In place of what was reserved, and of what was said before. Where a call never says it, its
        reserve is taken for what it used.
        """
        units = integer("units", units)
        if not 0 <= units <= U64_MAX:
            raise CallError("units must be 0 to 2^64-1", "units")
        self._used = units

    def settle(
        self,
        outcome: Outcome = "success",
        used: int | None = None,
        now_ns: int | None = None,
        unix_ns: int | None = None,
    ) -> Settled:
        """End the call now. Returns "already_settled" where that was done before, and "lapsed"
        where its lease was over.

        `used` defaults to what `used()` said, or else to what was reserved. Where the call was
        admitted at a time of yours and none is given here, that time is taken. Any thread may
        settle.
        """
        permit = self._decision.permit
        assert permit is not None, "an admitted call has a permit"
        if now_ns is None and unix_ns is None:
            now_ns, unix_ns = self._now_ns, self._unix_ns
        settled = self._gate.settle(
            permit, outcome, self._used if used is None else used, now_ns, unix_ns
        )
        self._is_settled = True
        return settled

    def cancel(self, now_ns: int | None = None, unix_ns: int | None = None) -> Settled:
        """The call never ran: give back what it was charged, as far as time has not done so."""
        return self.settle("cancelled", 0, now_ns, unix_ns)

    def __enter__(self) -> Call:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if kind is None:
            self._end("success")
        else:
            self._end("failure" if issubclass(kind, Exception) else "abandoned")

    async def __aenter__(self) -> Call:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.__exit__(kind, error, traceback)

    def __del__(self) -> None:
        try:
            is_settled = self._is_settled
        except AttributeError:
            return  # __init__ was never run.
        if not is_settled:
            self._end("abandoned")

    def _end(self, outcome: Outcome) -> None:
        if not self._is_settled and self._forks == _forks:
            self.settle(outcome)

    def __repr__(self) -> str:
        return f"<callgate.Call {self._decision!r}>"
