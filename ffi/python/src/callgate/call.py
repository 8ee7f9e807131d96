"""Call: an admitted call, settled at the end of a `with` block."""

from __future__ import annotations

from types import TracebackType
from typing import TYPE_CHECKING, final

from callgate.errors import CallError
from callgate.integers import U64_MAX, integer
from callgate.vocabulary import Outcome, Settled

if TYPE_CHECKING:
    from callgate._engine import Decision
    from callgate.gate import Gate


@final
class Call:
    """An admitted call, from `Gate.admit`. It is settled once, at the end of its `with` block:

    - "failure" where an `Exception` leaves the block;
    - "abandoned" where another exception does: `asyncio.CancelledError` (of a client that went
      away), `GeneratorExit`, `KeyboardInterrupt`;
    - "success" otherwise;
    - not again where `settle` or `cancel` did so before.

    Nothing in it blocks: a plain `with` is right in async code, too. A call that is never settled,
    as where no `with` block is entered, keeps what it was charged; nothing else is held by it.
    """

    __slots__ = ("_decision", "_gate", "_now_ns", "_unix_ns", "_used")

    def __init__(
        self, gate: Gate, decision: Decision, now_ns: int | None, unix_ns: int | None
    ) -> None:
        """Made by `Gate.admit`."""
        self._gate = gate
        self._decision = decision
        self._now_ns = now_ns
        self._unix_ns = unix_ns
        self._used = 0

    @property
    def decision(self) -> Decision:
        """What was decided: admitted, and what is left."""
        return self._decision

    def used(self, units: int) -> None:
        """Before it is settled: how many units the call uses up of its quotas, 0 to 2^64-1."""
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
        """End the call now. Returns "already_settled" where that was done before.

        `used` defaults to what `used()` said. Where the call was admitted at a time of yours and
        none is given here, that time is taken.
        """
        permit = self._decision.permit
        assert permit is not None, "an admitted call has a permit"
        if now_ns is None and unix_ns is None:
            now_ns, unix_ns = self._now_ns, self._unix_ns
        return self._gate.settle(
            permit, outcome, self._used if used is None else used, now_ns, unix_ns
        )

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
            self.settle("success")
        else:
            self.settle("failure" if issubclass(kind, Exception) else "abandoned")

    def __repr__(self) -> str:
        return f"<callgate.Call {self._decision!r}>"
