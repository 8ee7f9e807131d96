"""The gate that the environment describes."""

from __future__ import annotations

import logging

import pytest

from callgate import OFF, ConcurrencyLimit, Decision, Gate, Quota
from callgate.mcp import default_gate, env, gate_from_env
from mcp_support import Clock


def rate(gate: Gate, name: str) -> tuple[int, int, int]:
    limit = gate.limits[name]
    return limit.count, limit.period_ns, limit.burst


SECOND = 1_000_000_000
UNGUARDED = {"MCP_MAX_CONCURRENCY": "0", "MCP_DAILY_TOKEN_LIMIT": "0"}


def ask(gate: Gate, policy: str, caller: str | None, clock: Clock) -> Decision:
    """A call that ends at once."""
    decision = gate.try_admit(policy, caller, now_ns=clock(), unix_ns=clock())
    if decision.permit is not None:
        gate.settle(decision.permit, now_ns=clock(), unix_ns=clock())
    return decision


def test_without_any_variable_there_are_sensible_limits(caplog: pytest.LogCaptureFixture) -> None:
    gate = gate_from_env({})
    assert rate(gate, "caller") == (30, SECOND, 60)
    assert rate(gate, "anonymous") == (100, SECOND, 200)
    assert rate(gate, "forwarded") == (100, SECOND, 200)
    assert not caplog.records


def test_each_class_of_callers_has_its_policy() -> None:
    policies = {name: list(entries) for name, entries in gate_from_env({}).policies.items()}
    assert policies == {
        "authenticated": [("caller", "caller"), ("tokens", "caller"), ("server", "shared")],
        "anonymous": [("anonymous", "shared"), ("server", "shared")],
        "forwarded-bearer": [("forwarded", "shared"), ("caller", "caller"), ("server", "shared")],
    }


def test_the_burst_is_twice_the_rate_unless_it_is_set() -> None:
    assert rate(gate_from_env({"MCP_RATE_LIMIT": "7"}), "caller") == (7, SECOND, 14)
    burst = {"MCP_RATE_LIMIT": "7", "MCP_RATE_LIMIT_BURST": "5"}
    assert rate(gate_from_env(burst), "caller") == (7, SECOND, 5)
    assert rate(gate_from_env({"MCP_RATE_LIMIT_BURST": " 90 "}), "caller") == (30, SECOND, 90)


def test_the_anonymous_rate_has_a_burst_of_twice_itself() -> None:
    gate = gate_from_env({"MCP_RATE_LIMIT_ANONYMOUS": "5"})
    assert rate(gate, "anonymous") == (5, SECOND, 10)
    assert rate(gate, "forwarded") == (5, SECOND, 10)


def test_zero_anonymous_is_unlimited_and_mints_no_buckets_for_unverified_bearers() -> None:
    gate, clock = gate_from_env({"MCP_RATE_LIMIT_ANONYMOUS": "0"}), Clock()
    assert gate.limits["anonymous"] is OFF
    for bearer in range(1_000):
        assert ask(gate, "anonymous", None, clock).admitted
        assert ask(gate, "forwarded-bearer", f"b{bearer}", clock).admitted
    assert gate.stats(clock(), clock()).live == 0
    assert rate(gate, "caller") == (30, SECOND, 60)


def test_rate_zero_switches_the_rate_limits_off_and_nothing_else() -> None:
    gate, clock = gate_from_env({"MCP_RATE_LIMIT": "0"}), Clock()
    for _ in range(1_000):
        assert ask(gate, "authenticated", "user:1", clock).admitted
        assert ask(gate, "anonymous", None, clock).admitted
        assert ask(gate, "forwarded-bearer", "b", clock).admitted
    assert isinstance(gate.limits["server"], ConcurrencyLimit)
    assert isinstance(gate.limits["tokens"], Quota)


def test_everything_can_be_switched_off() -> None:
    gate, clock = gate_from_env({"MCP_RATE_LIMIT": "0", **UNGUARDED}), Clock()
    for _ in range(1_000):
        assert gate.try_admit("authenticated", "user:1", now_ns=clock()).admitted
        assert gate.try_admit("anonymous", now_ns=clock()).admitted
    assert gate.stats(clock(), clock()).live == 0


def test_three_calls_run_at_once_and_the_breaker_opens_for_half_a_minute() -> None:
    guard = gate_from_env({}).limits["server"]
    assert isinstance(guard, ConcurrencyLimit)
    assert (guard.max_in_flight, guard.reject_trip, guard.failure_trip) == (3, 5, 0)
    assert guard.cooldown_ns == 30 * SECOND
    values = {
        "MCP_MAX_CONCURRENCY": "7",
        "MCP_BREAKER_TRIP_THRESHOLD": "0",
        "MCP_BREAKER_COOLDOWN_SECONDS": "90",
    }
    guard = gate_from_env(values).limits["server"]
    assert (guard.max_in_flight, guard.reject_trip, guard.cooldown_ns) == (7, 0, 90 * SECOND)


def test_zero_places_are_no_limit() -> None:
    assert gate_from_env({"MCP_MAX_CONCURRENCY": "0"}).limits["server"] is OFF


def test_there_is_a_daily_quota_for_each_verified_caller() -> None:
    quota = gate_from_env({}).limits["tokens"]
    assert (quota.limit, quota.period_s) == (50_000, 86_400)
    assert gate_from_env({"MCP_DAILY_TOKEN_LIMIT": "7"}).limits["tokens"].limit == 7


@pytest.mark.parametrize("value", ["0", "-1", "-50000"])
def test_a_daily_limit_of_zero_or_less_switches_the_quota_off(
    value: str, caplog: pytest.LogCaptureFixture
) -> None:
    gate, clock = gate_from_env({"MCP_DAILY_TOKEN_LIMIT": value}), Clock()
    assert gate.limits["tokens"] is OFF
    decision = gate.try_admit("authenticated", "user:1", now_ns=clock())
    gate.settle(decision.permit, used=10**9, now_ns=clock())
    assert gate.try_admit("authenticated", "user:1", now_ns=clock()).admitted
    assert not caplog.records


def test_what_is_set_beside_rate_zero_is_warned_about(caplog: pytest.LogCaptureFixture) -> None:
    gate_from_env({"MCP_RATE_LIMIT": "0", "MCP_RATE_LIMIT_ANONYMOUS": "5"})
    assert "MCP_RATE_LIMIT_ANONYMOUS" in caplog.text


NUMBERS = [
    "MCP_RATE_LIMIT",
    "MCP_RATE_LIMIT_BURST",
    "MCP_RATE_LIMIT_ANONYMOUS",
    "MCP_MAX_CONCURRENCY",
    "MCP_BREAKER_TRIP_THRESHOLD",
    "MCP_BREAKER_COOLDOWN_SECONDS",
    "MCP_DAILY_TOKEN_LIMIT",
]
UNUSABLE = ["", "many", "1.5", "1e3", "0x10", "1_000", "٣", "nan", "9" * 19, "9" * 400]
OUT_OF_RANGE = [
    *((name, "-1") for name in NUMBERS if name != "MCP_DAILY_TOKEN_LIMIT"),
    ("MCP_MAX_CONCURRENCY", "4096"),
    ("MCP_BREAKER_TRIP_THRESHOLD", "64"),
    ("MCP_BREAKER_COOLDOWN_SECONDS", "0"),
    ("MCP_DAILY_TOKEN_LIMIT", str(2**47 + 1)),
]


@pytest.mark.parametrize(
    ("name", "value"), [*((name, value) for name in NUMBERS for value in UNUSABLE), *OUT_OF_RANGE]
)
def test_what_cannot_be_used_keeps_the_default_and_warns(
    name: str, value: str, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, logger="callgate.mcp"):
        gate = gate_from_env({name: value})
    assert rate(gate, "caller") == (30, SECOND, 60)
    assert rate(gate, "anonymous") == (100, SECOND, 200)
    assert dict(gate.limits) == dict(gate_from_env({}).limits)
    (warning,) = caplog.records
    assert name in warning.message


def test_the_start_up_line_says_what_holds(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, logger="callgate.mcp"):
        gate_from_env({"MCP_RATE_LIMIT": "7", "MCP_DAILY_TOKEN_LIMIT": "0"})
    (line,) = [record.message for record in caplog.records]
    assert line == (
        "effective limits: caller 7 calls a second, burst 14; "
        "anonymous 100 calls a second, burst 200; forwarded 100 calls a second, burst 200; "
        "tokens unlimited; server 3 calls at once, "
        "the breaker opens for 30 s after 5 refusals in a row"
    )


def test_a_burst_of_zero_is_out_of_range(caplog: pytest.LogCaptureFixture) -> None:
    assert rate(gate_from_env({"MCP_RATE_LIMIT_BURST": "0"}), "caller") == (30, SECOND, 60)
    assert "MCP_RATE_LIMIT_BURST" in caplog.text


def test_options_of_the_gate_are_passed_on() -> None:
    assert gate_from_env({}, capacity=17).capacity == 17


def test_the_default_gate_is_one_for_the_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(env, "_default_gate", None)
    monkeypatch.setenv("MCP_RATE_LIMIT", "11")
    gate = default_gate()
    assert gate is default_gate()
    assert rate(gate, "caller") == (11, SECOND, 22)


def test_an_unverified_bearer_has_a_bucket_only_once_the_shared_allowance_admits_it() -> None:
    gate, clock = gate_from_env({"MCP_RATE_LIMIT_ANONYMOUS": "5"}), Clock()
    admitted = sum(
        ask(gate, "forwarded-bearer", f"bearer-{n}", clock).admitted for n in range(1_000)
    )
    assert admitted == 10
    # The shared allowance and ten bearers. Nothing is in flight.
    assert gate.stats(clock(), clock()).live == 11
