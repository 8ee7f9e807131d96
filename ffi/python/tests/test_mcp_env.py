"""The gate that the environment describes."""

from __future__ import annotations

import logging

import pytest

from callgate import OFF, Gate
from callgate.mcp import default_gate, env, gate_from_env
from mcp_support import Clock


def rate(gate: Gate, name: str) -> tuple[int, int, int]:
    limit = gate.limits[name]
    return limit.count, limit.period_ns, limit.burst


SECOND = 1_000_000_000


def test_without_any_variable_there_are_sensible_limits(caplog: pytest.LogCaptureFixture) -> None:
    gate = gate_from_env({})
    assert rate(gate, "caller") == (30, SECOND, 60)
    assert rate(gate, "anonymous") == (100, SECOND, 200)
    assert rate(gate, "forwarded") == (100, SECOND, 200)
    assert not caplog.records


def test_each_class_of_callers_has_its_policy() -> None:
    policies = {name: list(entries) for name, entries in gate_from_env({}).policies.items()}
    assert policies == {
        "authenticated": [("caller", "caller")],
        "anonymous": [("anonymous", "shared")],
        "forwarded-bearer": [("forwarded", "shared"), ("caller", "caller")],
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
        assert gate.try_admit("anonymous", now_ns=clock()).admitted
        assert gate.try_admit("forwarded-bearer", f"b{bearer}", now_ns=clock()).admitted
    assert gate.stats(now_ns=clock()).live == 0
    assert rate(gate, "caller") == (30, SECOND, 60)


def test_rate_zero_switches_everything_off() -> None:
    gate, clock = gate_from_env({"MCP_RATE_LIMIT": "0"}), Clock()
    for _ in range(1_000):
        assert gate.try_admit("authenticated", "user:1", now_ns=clock()).admitted
        assert gate.try_admit("anonymous", now_ns=clock()).admitted
        assert gate.try_admit("forwarded-bearer", "b", now_ns=clock()).admitted
    assert gate.stats(now_ns=clock()).live == 0


def test_what_is_set_beside_rate_zero_is_warned_about(caplog: pytest.LogCaptureFixture) -> None:
    gate_from_env({"MCP_RATE_LIMIT": "0", "MCP_RATE_LIMIT_ANONYMOUS": "5"})
    assert "MCP_RATE_LIMIT_ANONYMOUS" in caplog.text


@pytest.mark.parametrize(
    "name", ["MCP_RATE_LIMIT", "MCP_RATE_LIMIT_BURST", "MCP_RATE_LIMIT_ANONYMOUS"]
)
@pytest.mark.parametrize(
    "value", ["", "many", "-1", "1.5", "1e3", "0x10", "1_000", "٣", "nan", "9" * 19, "9" * 400]
)
def test_what_cannot_be_used_keeps_the_default_and_warns(
    name: str, value: str, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, logger="callgate.mcp"):
        gate = gate_from_env({name: value})
    assert rate(gate, "caller") == (30, SECOND, 60)
    assert rate(gate, "anonymous") == (100, SECOND, 200)
    assert name in caplog.text


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
        gate.try_admit("forwarded-bearer", f"bearer-{n}", now_ns=clock()).admitted
        for n in range(1_000)
    )
    assert admitted == 10
    # The shared allowance and ten bearers.
    assert gate.stats(now_ns=clock()).live == 11
