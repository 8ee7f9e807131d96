"""Reconfiguring a limit keeps every caller's debt and hands out no burst."""

from __future__ import annotations

import pytest

from callgate import OFF, ConcurrencyLimit, ConfigError, Gate, Quota, RateLimit
from callgate.limits import Limit
from engine_support import SECOND_NS, admitted, gate_of, remaining


def test_a_lower_limit_keeps_the_debt() -> None:
    gate = gate_of(count=1, burst=10)
    assert admitted(gate, 10) == 10
    gate.reconfigure("rate", RateLimit(1, burst=2), now_ns=0)
    assert admitted(gate, 5) == 0
    assert gate.try_admit("default", "alice", now_ns=SECOND_NS)
    assert gate.limits["rate"] == RateLimit(1, burst=2)


def test_a_higher_limit_hands_out_no_burst() -> None:
    gate = gate_of(count=1, burst=10)
    admitted(gate, 10)
    gate.reconfigure("rate", RateLimit(1000, burst=1000), now_ns=0)
    assert remaining(gate) <= 990
    assert remaining(gate, "newcomer") == 1000


def test_a_debt_deeper_than_the_new_limit_can_express_becomes_an_empty_bucket() -> None:
    gate = gate_of(count=1, per="1h", burst=10)
    admitted(gate, 10)
    gate.reconfigure("rate", RateLimit(1, per="1s", burst=10), now_ns=0)
    assert gate.try_admit("default", "alice", now_ns=0).retry_after_ns == SECOND_NS


def test_a_limit_that_is_switched_off_and_on_again_keeps_the_debt() -> None:
    gate = gate_of(count=1, per="1h", burst=10)
    admitted(gate, 10)
    gate.reconfigure("rate", OFF, now_ns=0)
    assert gate.limits["rate"] is OFF
    assert admitted(gate, 100) == 100
    gate.reconfigure("rate", RateLimit(1, per="1h", burst=10), now_ns=0)
    assert admitted(gate, 5) == 0


def test_a_charge_from_before_the_change_is_not_given_back() -> None:
    gate = gate_of(count=1, burst=10)
    permit = gate.try_admit("default", "alice", cost=5, now_ns=0).permit
    assert permit is not None
    gate.reconfigure("rate", RateLimit(1, burst=10), now_ns=0)
    assert gate.settle(permit, "cancelled", now_ns=0) == "ok"
    assert remaining(gate) == 5


def test_a_change_that_fails_changes_nothing() -> None:
    gate = gate_of()
    broken = RateLimit(1)
    object.__setattr__(broken, "burst", 2**64)
    with pytest.raises(ConfigError, match=r"^limit 'rate': burst must be 1 or more") as raised:
        gate.reconfigure("rate", broken, now_ns=0)
    assert (raised.value.field, raised.value.limit) == ("burst", "rate")
    assert gate.limits["rate"] == RateLimit(30, burst=60)
    assert remaining(gate) == 60


@pytest.mark.parametrize("to", [ConcurrencyLimit(1), Quota(1)])
def test_a_limit_keeps_its_kind_also_while_it_is_off(to: Limit) -> None:
    gate = gate_of()
    for _ in range(2):
        with pytest.raises(ConfigError, match="stay what it is, RateLimit, or be OFF") as raised:
            gate.reconfigure("rate", to)
        assert (raised.value.field, raised.value.limit) == ("kind", "rate")
        gate.reconfigure("rate", OFF)


def test_a_limit_that_was_never_on_may_become_any() -> None:
    for to in (RateLimit(1), ConcurrencyLimit(1), Quota(1)):
        gate = Gate(limits={"x": OFF}, policies={"default": [("x", "shared")]})
        gate.reconfigure("x", to)
        assert gate.try_admit("default").limit == 1
        assert gate.limits["x"] == to


def test_a_concurrency_limit_keeps_its_lease() -> None:
    gate = Gate(
        limits={"x": ConcurrencyLimit(1, lease="2h")}, policies={"default": [("x", "shared")]}
    )
    gate.reconfigure("x", ConcurrencyLimit(5, lease="120m", failure_trip=1, cooldown="1s"))
    with pytest.raises(ConfigError, match=r"^limit 'x': lease_ns must be .* what it was") as raised:
        gate.reconfigure("x", ConcurrencyLimit(5, lease="1h"))
    assert raised.value.field == "lease_ns"
    assert gate.limits["x"] == ConcurrencyLimit(5, failure_trip=1, cooldown="1s")


def test_by_the_systems_clock_too() -> None:
    gate = gate_of(count=1, per="1h", burst=10)
    assert gate.try_admit("default", "alice", cost=10)
    gate.reconfigure("rate", RateLimit(1, per="1h", burst=20))
    assert gate.peek("default", "alice", cost=0)[0].remaining == 10
