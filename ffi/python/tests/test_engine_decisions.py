"""What is decided, to the nanosecond."""

from __future__ import annotations

import time
from typing import Any

import pytest

from callgate import OFF, Decision, Gate, RateLimit, Report
from engine_support import SECOND_NS, admitted, gate_of, remaining


def test_a_full_bucket_admits_its_burst_and_then_names_the_exact_wait() -> None:
    gate = gate_of()
    assert admitted(gate, 60) == 60
    refused = gate.try_admit("default", caller="alice", now_ns=0)
    assert (refused.admitted, refused.reason, refused.by) == (False, "rate", "rate")
    assert refused.retry_after_ns == 33_333_334
    assert (refused.limit, refused.remaining, refused.reset_after_ns) == (60, 0, 2_000_000_001)
    assert refused.permit is None


def test_whoever_sleeps_exactly_the_wait_is_admitted_and_not_a_nanosecond_earlier() -> None:
    gate = gate_of()
    admitted(gate, 60)
    early = gate.try_admit("default", caller="alice", now_ns=33_333_333)
    assert (early.admitted, early.retry_after_ns) == (False, 1)
    assert gate.try_admit("default", caller="alice", now_ns=33_333_334).admitted


def test_an_admitted_call_tells_what_is_left() -> None:
    decision = gate_of().try_admit("default", "alice", now_ns=0)
    assert decision.admitted and bool(decision)
    assert (decision.reason, decision.by, decision.retry_after_ns) == (None, "rate", 0)
    assert (decision.limit, decision.remaining) == (60, 59)
    assert decision.reset_after_ns == 33_333_334
    assert decision.permit is not None


def test_a_refused_decision_is_false() -> None:
    assert not gate_of(burst=1).try_admit("default", "alice", cost=2, now_ns=0)


def test_a_cost_above_the_burst_is_never_admitted_and_charges_nothing() -> None:
    gate = gate_of()
    decision = gate.try_admit("default", "alice", cost=61, now_ns=0)
    assert (decision.reason, decision.retry_after_ns, decision.by) == ("never", 0, "rate")
    assert remaining(gate) == 60


def test_the_greatest_cost_is_never_admitted_either() -> None:
    assert gate_of().try_admit("default", "alice", cost=2**64 - 1, now_ns=0).reason == "never"


def test_a_batch_takes_its_cost() -> None:
    gate = gate_of()
    assert gate.try_admit("default", "alice", cost=25, now_ns=0).remaining == 35
    assert gate.try_admit("default", "alice", cost=36, now_ns=0).reason == "rate"
    assert remaining(gate) == 35


def test_cost_zero_takes_nothing() -> None:
    gate = gate_of()
    assert gate.try_admit("default", "alice", cost=0, now_ns=0).remaining == 60
    assert gate.stats(now_ns=0).live == 0


def test_callers_have_buckets_of_their_own() -> None:
    gate = gate_of(scope="caller")
    assert admitted(gate, 100, "alice") == 60
    assert admitted(gate, 100, "bob") == 60


def test_tools_have_buckets_of_their_own_whoever_calls() -> None:
    gate = gate_of(scope="tool", burst=2)
    calls = [("alice", "search"), ("bob", "search"), ("carol", "search"), ("carol", "read")]
    decisions = [gate.try_admit("default", caller, tool, now_ns=0) for caller, tool in calls]
    assert [d.admitted for d in decisions] == [True, True, False, True]


def test_pairs_of_caller_and_tool_have_buckets_of_their_own() -> None:
    gate = gate_of(scope="caller_tool", burst=1)
    calls = [("a", "x"), ("a", "y"), ("b", "x"), ("b", "y"), ("a", "x"), ("b", "y")]
    decisions = [gate.try_admit("default", caller, tool, now_ns=0) for caller, tool in calls]
    assert [d.admitted for d in decisions] == [True, True, True, True, False, False]


def test_a_shared_bucket_is_everybodys_with_a_caller_or_without() -> None:
    gate = gate_of(scope="shared", burst=3)
    callers = ["alice", None, "bob", "carol", None]
    decisions = [gate.try_admit("default", caller, now_ns=0) for caller in callers]
    assert [d.admitted for d in decisions] == [True, True, True, False, False]


def test_a_caller_and_a_tool_of_one_name_are_not_the_same() -> None:
    gate = Gate(
        limits={"rate": RateLimit(1, burst=1)},
        policies={"by_caller": [("rate", "caller")], "by_tool": [("rate", "tool")]},
    )
    assert gate.try_admit("by_caller", caller="x", now_ns=0)
    assert gate.try_admit("by_tool", tool="x", now_ns=0)


def test_a_str_and_its_utf8_are_the_same_caller() -> None:
    gate = gate_of(burst=1)
    assert gate.try_admit("default", "größe\0", now_ns=0)
    assert not gate.try_admit("default", "größe\0".encode(), now_ns=0)
    assert gate.try_admit("default", "größe", now_ns=0), "what follows a NUL counts"


def two_limits() -> Gate:
    return Gate(
        limits={"day": RateLimit(1000, per="1d"), "second": RateLimit(10, per="1s")},
        policies={
            "both": [("day", "caller"), ("second", "caller")],
            "day": [("day", "caller")],
        },
    )


def test_a_refusal_by_the_second_limit_charges_the_first_nothing() -> None:
    gate = two_limits()
    decisions = [gate.try_admit("both", "alice", now_ns=0) for _ in range(30)]
    assert sum(d.admitted for d in decisions) == 10
    assert decisions[-1].by == "second"
    assert gate.try_admit("day", "alice", cost=0, now_ns=0).remaining == 990


def test_an_admission_reports_on_the_limit_with_the_fewest_tokens_left() -> None:
    assert two_limits().try_admit("both", "alice", now_ns=0).by == "second"


def test_a_limit_that_is_off_admits_everything_and_keeps_nothing() -> None:
    gate = Gate(limits={"none": OFF}, policies={"open": [("none", "shared")]})
    for cost in (0, 1, 2**64 - 1):
        decision = gate.try_admit("open", cost=cost, now_ns=0)
        assert (decision.admitted, decision.by) == (True, None)
        assert decision.limit == decision.remaining == 2**64 - 1
    assert gate.stats(now_ns=0).live == 0


def test_beside_a_limit_that_is_off_the_other_decides() -> None:
    gate = Gate(
        limits={"none": OFF, "rate": RateLimit(1)},
        policies={"p": [("none", "shared"), ("rate", "caller")]},
    )
    assert gate.try_admit("p", "alice", now_ns=0).by == "rate"
    assert gate.try_admit("p", "alice", now_ns=0).by == "rate"
    assert not gate.try_admit("p", "alice", now_ns=0)


def test_peek_reports_on_every_limit_in_the_policys_order_and_changes_nothing() -> None:
    gate = two_limits()
    for _ in range(10):
        gate.try_admit("both", "alice", now_ns=0)
    before = gate.stats(now_ns=0)
    for _ in range(3):
        assert gate.peek("both", "alice", now_ns=0) == [
            Report("day", None, 0, 1000, 989, 950_400_000_000),
            Report("second", "rate", 100_000_000, 10, 0, SECOND_NS),
        ]
        gate.peek("both", "somebody new", now_ns=0)
    assert gate.stats(now_ns=0) == before


def test_peek_names_a_limit_that_is_off() -> None:
    gate = Gate(limits={"none": OFF}, policies={"open": [("none", "shared")]})
    assert gate.peek("open") == [Report("none", None, 0, 2**64 - 1, 2**64 - 1, 0)]


def test_stats_count_decisions_by_policy_limit_and_reason() -> None:
    gate = two_limits()
    for _ in range(12):
        gate.try_admit("both", "alice", now_ns=0)
    gate.try_admit("day", "bob", cost=1001, now_ns=0)
    stats = gate.stats(now_ns=0)
    assert stats.decisions == {
        ("both", None, None): 10,
        ("both", "second", "rate"): 2,
        ("day", None, None): 0,
        ("day", "day", "never"): 1,
    }
    assert stats.slots == stats.live + stats.at_rest + stats.claimed + stats.empty
    assert stats.live == 2
    assert gate.stats(now_ns=2 * 86_400 * SECOND_NS).live == 0


def test_stats_add_up_what_one_limit_refused_under_two_scopes() -> None:
    gate = Gate(
        limits={"rate": RateLimit(1, burst=2)},
        policies={"p": [("rate", "caller"), ("rate", "tool")]},
    )
    gate.try_admit("p", "a", "x", cost=2, now_ns=0)
    gate.try_admit("p", "a", "y", now_ns=0)
    gate.try_admit("p", "b", "x", now_ns=0)
    assert gate.stats(now_ns=0).decisions["p", "rate", "rate"] == 2


def test_where_there_is_no_place_a_new_caller_is_refused_and_its_wait_is_true() -> None:
    gate = gate_of(count=1, burst=1, capacity=8)
    refused: Decision | None = None
    for n in range(1000):
        decision = gate.try_admit("default", f"caller {n}", now_ns=0)
        assert decision.reason in (None, "table_full")
        if not decision:
            refused, name = decision, f"caller {n}"
            break
    assert refused is not None
    assert (refused.by, refused.limit, refused.retry_after_ns) == ("rate", 0, SECOND_NS)
    assert not gate.try_admit("default", name, now_ns=SECOND_NS - 1)
    assert gate.try_admit("default", name, now_ns=SECOND_NS)


@pytest.mark.parametrize("capacity", [1, 2, 7, 100, 3000])
def test_the_first_callers_up_to_capacity_are_all_tracked(capacity: int) -> None:
    gate = gate_of(burst=1, capacity=capacity)
    callers = [f"caller {n}" for n in range(capacity)]
    assert all(gate.try_admit("default", caller, now_ns=0) for caller in callers)
    assert not any(gate.try_admit("default", caller, now_ns=0) for caller in callers)


def test_without_a_time_the_systems_clock_decides() -> None:
    gate = gate_of(count=1, per="20ms", burst=1)
    assert gate.try_admit("default", "alice")
    refused = gate.try_admit("default", "alice")
    assert not refused and 0 < refused.retry_after_ns <= 20_000_000
    time.sleep(refused.retry_after_ns / 1e9)
    assert gate.try_admit("default", "alice")


def test_a_time_passed_in_is_the_only_clock() -> None:
    gate = gate_of(burst=1)
    last_ns = 2**61 - 1
    assert gate.try_admit("default", "alice", now_ns=last_ns, unix_ns=2**64 - 1)
    assert not gate.try_admit("default", "alice", now_ns=last_ns)


def test_arguments_may_be_positional_or_named_in_any_order() -> None:
    gate = gate_of(scope="caller_tool", burst=10)
    gate.try_admit("default", "a", "t", 2, 0, 0, 0)
    gate.try_admit(unix_ns=0, now_ns=0, reserve=0, cost=3, tool="t", caller="a", policy="default")
    assert gate.peek("default", "a", "t", cost=0, now_ns=0)[0].remaining == 5


def test_names_that_are_not_interned_are_found() -> None:
    gate = gate_of()
    policy = "".join(["def", "ault"])
    arguments: dict[str, Any] = {"".join(["cal", "ler"]): "alice", "now_ns": 0}
    assert gate.try_admit(policy, **arguments).remaining == 59


def test_a_decision_and_a_refusal_are_readable() -> None:
    gate = gate_of()
    decision = gate.try_admit("default", "alice", now_ns=0)
    assert repr(decision) == "<callgate.Decision admitted, 'rate': 59 of 60 left>"
    refusal = gate.try_admit("default", "alice", cost=60, now_ns=0)
    assert repr(refusal) == ("<callgate.Decision refused by 'rate': rate, retry_after_ns=33333334>")
    assert repr(gate) == "<callgate.Gate of 1 limits, 1 policies, capacity 10000>"
