"""What one message was charged: settled once, when everybody who runs it has let go of it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final
from weakref import WeakSet

from callgate import Gate, Permit
from callgate.mcp.usage import Usage
from callgate.vocabulary import Outcome

RECEIPTS: Final = "callgate.receipts"
"""Key of the ASGI scope under which the calls that this request has paid for are noted."""

Settle = Callable[[Permit, Outcome, int], Any]

_WEIGHT: Final[dict[Outcome, int]] = {"cancelled": 0, "success": 1, "abandoned": 2, "failure": 3}


@dataclass(frozen=True, slots=True)
class Share:
    """One of the permits of a message: a batch over several policies has several."""

    permit: Permit
    reserve: int
    has_quota: bool


class Charge:
    """The permits of one message, and what its calls have used.

    A request over HTTP and the handler within it end at different times: a client may leave while
    the handler runs on. Each of them holds the charge, and a place is free again when both have
    ended. The worst that one of them says became of the call is what is settled.
    """

    __slots__ = ("_holds", "_outcome", "_settle", "_shares", "usage")

    def __init__(self, settle: Settle, shares: Sequence[Share] = ()) -> None:
        self._settle = settle
        self._shares = shares
        self._holds = 0
        self._outcome: Outcome = "cancelled"
        self.usage = Usage()

    def hold(self) -> Hold:
        """One more who has to let go. After the end it changes nothing."""
        self._holds += 1
        return Hold(self)

    def let_go(self, outcome: Outcome) -> None:
        self._holds -= 1
        if _WEIGHT[outcome] > _WEIGHT[self._outcome]:
            self._outcome = outcome
        if self._holds == 0:
            shares, self._shares = self._shares, ()
            used_by_share = self._used(shares, self.usage.end())
            for share, used in zip(shares, used_by_share, strict=True):
                self._settle(share.permit, self._outcome, used)

    @property
    def is_over(self) -> bool:
        """Everybody has let go of it: its places are free, and its calls are counted."""
        return self.usage.is_over

    def _used(self, shares: Sequence[Share], total: int | None) -> list[int]:
        """By permit. Where nobody has said what was used, the estimate stands.

        Of a batch over several policies it isn't known which call used what: the first with a quota
        pays for all.
        """
        if total is None:
            return [share.reserve for share in shares]
        used = [0] * len(shares)
        payer = next((n for n, share in enumerate(shares) if share.has_quota), 0)
        if used:
            used[payer] = total
        return used


class Hold:
    """Lets go of a charge, on whichever way out comes first; later ones change nothing."""

    __slots__ = ("_is_over", "charge")

    def __init__(self, charge: Charge) -> None:
        self.charge = charge
        self._is_over = False

    def settle(self, outcome: Outcome) -> None:
        if not self._is_over:
            self._is_over = True
            self.charge.let_go(outcome)


class Receipt:
    """Calls paid for at one gate, so that an inner middleware on the same gate lets them through.

    Each inner call takes one. A message that turns out to hold more calls than were counted outside
    so has the surplus charged inside.
    """

    __slots__ = ("_charge", "_handed_over", "_left", "gate")

    def __init__(self, gate: Gate, calls: int, charge: Charge) -> None:
        self.gate = gate
        self._charge = charge
        self._left = calls
        self._handed_over: Callable[[], None] | None = None

    def take(self) -> Hold | None:
        """A hold on the charge for one call; None where all have been taken, and where the charge
        is over: a call that comes so late has no place."""
        if self._left <= 0 or self._charge.is_over:
            return None
        self._left -= 1
        hold = self._charge.hold()
        if self._left == 0 and self._handed_over is not None:
            self._handed_over()
        return hold

    def hand_over(self, settle: Callable[[], None]) -> bool:
        """Whether a handler is still to come for the calls: `settle` is called once it is there, or
        when it should have been. Without a handler to expect it is never called."""
        if self._handed_over is not None and self._left > 0:
            return True
        if self._left == 0 or self.gate not in _gates_with_handlers:
            return False
        try:
            timer = asyncio.get_running_loop().call_later(HANDOVER_S, settle)
        except RuntimeError:
            # Another kind of event loop.
            return False

        def handed_over() -> None:
            timer.cancel()
            settle()

        self._handed_over = handed_over
        return True


HANDOVER_S: Final = 5.0
"""For so long a charge waits for the handler of a request that was answered with 202."""

_gates_with_handlers: WeakSet[Gate] = WeakSet()


def expect_handlers(gate: Gate) -> None:
    """A middleware around the handlers of a server is on this gate."""
    _gates_with_handlers.add(gate)
