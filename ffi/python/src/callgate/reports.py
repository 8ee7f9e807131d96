"""What a gate tells about itself."""

from __future__ import annotations

from dataclasses import dataclass

from callgate.vocabulary import Reason


@dataclass(frozen=True, slots=True)
class Report:
    """What one limit of a policy would say to a call."""

    limit_name: str
    """The limit's name."""
    reason: Reason | None
    """Why it would refuse; None where it would admit."""
    retry_after_ns: int
    """It would admit in so many nanoseconds; 0 where it does, and where no time can be known."""
    limit: int
    """What the limit holds when nobody has charged it: tokens, places or units; 2**64-1 where it is
    off."""
    remaining: int
    """What is left of that: before the call where it would be refused, after it where admitted."""
    reset_after_ns: int
    """All of it is back in so many nanoseconds; 0 of a concurrency limit, whose places come back
    when calls end."""


@dataclass(frozen=True, slots=True)
class Guards:
    """What a concurrency limit looks like now, over all its states (one for each caller, say), and
    what was counted since the gate was made.

    In memory that forked workers share, both are those of all of them.
    """

    in_flight: int
    """How many calls hold a place."""
    open: int
    """How many breakers are open."""
    half_open: int
    """How many breakers are half-open."""
    trips: int
    """How often a breaker opened."""
    lapsed: int
    """How many permits were settled after their lease."""


@dataclass(frozen=True, slots=True)
class Stats:
    """What a gate's table holds now, and what was decided since the gate was made.

    In memory that forked workers share, both are those of all of them.
    """

    slots: int
    """All slots of the table."""
    live: int
    """Slots with a state that is not at rest."""
    at_rest: int
    """Slots with a state at rest, free for anybody."""
    claimed: int
    """Slots that a thread is about to use."""
    empty: int
    """Slots that hold nothing."""
    decisions: dict[tuple[str, str | None, Reason | None], int]
    """How many, by (policy, limit that refused, reason). (policy, None, None) are the admitted."""
