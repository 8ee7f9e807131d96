"""What one message was charged: settled once, when everybody who runs it has let go of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

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
            for share, used in zip(shares, self._used(shares), strict=True):
                self._settle(share.permit, self._outcome, used)

    def _used(self, shares: Sequence[Share]) -> list[int]:
        """By permit. Where nobody has said what was used, the estimate stands.

        Of a batch over several policies it isn't known which call used what: the first with a quota
        pays for all.
        """
        total = self.usage.total
        if total is None:
            return [share.reserve for share in shares]
        used = [0] * len(shares)
        payer = next((n for n, share in enumerate(shares) if share.has_quota), 0)
        if used:
            used[payer] = total
        return used


class Hold:
    """Lets go of a charge, on whichever way out comes first; later ones change nothing."""

    __slots__ = ("_charge",)

    def __init__(self, charge: Charge) -> None:
        self._charge: Charge | None = charge

    def settle(self, outcome: Outcome) -> None:
        charge, self._charge = self._charge, None
        if charge is not None:
            charge.let_go(outcome)


class Receipt:
    """Calls paid for at one gate, so that an inner middleware on the same gate lets them through.

    Each inner call takes one. A message that turns out to hold more calls than were counted outside
    so has the surplus charged inside.
    """

    __slots__ = ("_left", "charge", "gate")

    def __init__(self, gate: Gate, calls: int, charge: Charge) -> None:
        self.gate = gate
        self.charge = charge
        self._left = calls

    def take(self) -> bool:
        if self._left <= 0:
            return False
        self._left -= 1
        return True
