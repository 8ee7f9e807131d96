"""Metrics: OpenMetrics text that the real parser reads, and no identity in any label."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from prometheus_client import CollectorRegistry
from prometheus_client.openmetrics.exposition import generate_latest
from prometheus_client.openmetrics.parser import text_string_to_metric_families
from prometheus_client.parser import text_string_to_metric_families as parse_classic

from callgate import OFF, ConcurrencyLimit, ConfigError, Gate, Quota, RateLimit
from callgate.metrics import CONTENT_TYPE, Message, metrics_app
from callgate.prometheus import CallgateCollector

SECRET = "user:1001-sk-verysecret"

Samples = dict[tuple[str, tuple[tuple[str, str], ...]], float]


def gate_with_a_past() -> Gate:
    gate = Gate(
        limits={
            "caller": RateLimit(1, per="1h", burst=4),
            "tokens": Quota(100),
            "server": ConcurrencyLimit(2, lease="1s", reject_trip=1, cooldown="1h"),
        },
        policies={
            "known": [("caller", "caller"), ("tokens", "caller"), ("server", "shared")],
            "anonymous": [("server", "shared")],
        },
        capacity=16,
    )
    first = gate.try_admit("known", SECRET, now_ns=0, unix_ns=0)
    second = gate.try_admit("known", SECRET, now_ns=0, unix_ns=0)
    assert first.permit is not None and second.permit is not None
    gate.try_admit("known", SECRET, now_ns=0, unix_ns=0)  # trips the breaker
    gate.try_admit("anonymous", now_ns=0, unix_ns=0)
    gate.try_admit("known", SECRET, cost=3, now_ns=0, unix_ns=0)
    gate.try_admit("known", SECRET, cost=5, now_ns=0, unix_ns=0)
    gate.try_admit("known", SECRET, reserve=101, now_ns=0, unix_ns=0)
    gate.settle(first.permit, "success", 5, now_ns=0, unix_ns=0)
    gate.count_internal_error()
    return gate


def parsed(text: str) -> Samples:
    samples: Samples = {}
    for family in text_string_to_metric_families(text):  # type: ignore[no-untyped-call]
        for sample in family.samples:
            key = (sample.name, tuple(sorted(sample.labels.items())))
            assert key not in samples
            samples[key] = sample.value
    return samples


def latest(registry: CollectorRegistry) -> str:
    text: bytes = generate_latest(registry)  # type: ignore[no-untyped-call]
    return text.decode()


def value(samples: Samples, name: str, **labels: str) -> float:
    return samples[name, tuple(sorted(labels.items()))]


def test_the_real_parser_reads_what_happened() -> None:
    samples = parsed(gate_with_a_past().metrics(now_ns=0, unix_ns=0))
    decisions = {
        ("known", "", "admitted"): 2,
        ("known", "server", "breaker_open"): 1,
        ("known", "caller", "rate"): 1,
        ("known", "caller", "never"): 1,
        ("known", "tokens", "never"): 1,
        ("anonymous", "", "admitted"): 0,
        ("anonymous", "server", "breaker_open"): 1,
    }
    found = {
        (labels["policy"], labels["limit"], labels["reason"]): count
        for (name, pairs), count in samples.items()
        if name == "callgate_decisions_total"
        for labels in [dict(pairs)]
    }
    assert found == decisions
    assert value(samples, "callgate_in_flight", limit="server") == 1
    assert value(samples, "callgate_breaker_open", limit="server") == 1
    assert value(samples, "callgate_breaker_half_open", limit="server") == 0
    assert value(samples, "callgate_breaker_trips_total", limit="server") == 1
    assert value(samples, "callgate_permits_lapsed_total", limit="server") == 0
    assert value(samples, "callgate_table_slots", state="live") == 3
    states = ("live", "at_rest", "claimed", "empty")
    slots = sum(value(samples, "callgate_table_slots", state=state) for state in states)
    assert slots == gate_with_a_past().stats().slots
    assert value(samples, "callgate_internal_errors_total") == 1


def test_a_lapsed_permit_is_counted() -> None:
    gate = gate_with_a_past()
    late = gate.try_admit("anonymous", now_ns=2 * 3600 * 10**9, unix_ns=0).permit
    assert late is not None
    later = 3 * 3600 * 10**9
    assert gate.settle(late, now_ns=later, unix_ns=0) == "lapsed"
    samples = parsed(gate.metrics(now_ns=later, unix_ns=0))
    assert value(samples, "callgate_permits_lapsed_total", limit="server") == 1
    assert value(samples, "callgate_in_flight", limit="server") == 0


def test_the_text_ends_as_openmetrics_wants_and_is_the_same_by_the_systems_clock() -> None:
    gate = gate_with_a_past()
    assert gate.metrics(now_ns=0, unix_ns=0).endswith("\n# EOF\n")
    assert parsed(gate.metrics()).keys() == parsed(gate.metrics(now_ns=0, unix_ns=0)).keys()


def test_no_label_holds_an_identity() -> None:
    text = gate_with_a_past().metrics()
    assert "1001" not in text and "secret" not in text
    labels = {label for _, pairs in parsed(text) for label, _ in pairs}
    assert labels == {"policy", "limit", "reason", "state"}


def test_names_of_any_kind_survive() -> None:
    names = ['quo"te', "back\\slash", "new\nline", "ünïcode", "{a=\"b\"} 7", "\\n"]  # fmt: skip
    gate = Gate(
        limits={name: ConcurrencyLimit(1) for name in names},
        policies={name: [(name, "shared")] for name in names},
    )
    samples = parsed(gate.metrics())
    for name in names:
        assert value(samples, "callgate_in_flight", limit=name) == 0
        key = {"policy": name, "limit": "", "reason": "admitted"}
        assert value(samples, "callgate_decisions_total", **key) == 0


def test_a_guard_that_is_switched_off_is_still_told_of() -> None:
    gate = gate_with_a_past()
    gate.reconfigure("server", OFF, now_ns=0)
    samples = parsed(gate.metrics(now_ns=0, unix_ns=0))
    assert value(samples, "callgate_breaker_trips_total", limit="server") == 1


def test_a_gate_of_rate_limits_alone_has_metrics_too() -> None:
    gate = Gate(limits={"r": RateLimit(1)}, policies={"p": [("r", "shared")]})
    assert value(parsed(gate.metrics(now_ns=0)), "callgate_internal_errors_total") == 0


def test_the_collector_tells_prometheus_client_the_same() -> None:
    gate = gate_with_a_past()
    registry = CollectorRegistry()
    registry.register(CallgateCollector(gate))
    text = latest(registry)
    assert parsed(text) == parsed(gate.metrics())
    assert registry.get_sample_value("callgate_breaker_trips_total", {"limit": "server"}) == 1
    with pytest.raises(ValueError, match="Duplicated"):
        registry.register(CallgateCollector(gate))


def test_the_classic_text_of_prometheus_client_is_read_too() -> None:
    from prometheus_client import generate_latest as generate_classic

    registry = CollectorRegistry()
    registry.register(CallgateCollector(gate_with_a_past()))
    families = {f.name for f in parse_classic(generate_classic(registry).decode())}
    assert {"callgate_decisions", "callgate_in_flight", "callgate_table_slots"} <= families


def test_several_gates_are_told_apart() -> None:
    gates = (
        gate_with_a_past(),
        Gate(
            limits={"server": ConcurrencyLimit(1)}, policies={"anonymous": [("server", "shared")]}
        ),
    )
    registry = CollectorRegistry()
    registry.register(CallgateCollector(*gates))
    samples = parsed(latest(registry))
    for place, trips in (("0", 1), ("1", 0)):
        name = "callgate_breaker_trips_total"
        assert value(samples, name, gate=place, limit="server") == trips
    assert parsed(get(metrics_app(*gates))[2].decode()) == samples


def get(
    app: Any, method: str = "GET", path: str = "/metrics", root_path: str = ""
) -> tuple[int, dict[bytes, bytes], bytes]:
    sent: list[Message] = []

    async def receive() -> Message:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: Message) -> None:
        sent.append(message)

    scope = {"type": "http", "method": method, "path": path, "root_path": root_path}
    asyncio.run(app(scope, receive, send))
    start, body = sent
    return start["status"], dict(start["headers"]), body["body"]


def test_the_app_serves_the_text() -> None:
    gate = gate_with_a_past()
    status, headers, body = get(metrics_app(gate))
    assert status == 200
    assert headers[b"content-type"] == CONTENT_TYPE.encode()
    assert headers[b"content-length"] == str(len(body)).encode()
    assert parsed(body.decode()) == parsed(gate.metrics())


@pytest.mark.parametrize(
    ("method", "path", "root_path", "status"),
    [
        ("GET", "/metrics", "/metrics", 200),
        ("GET", "/app/metrics", "/app", 200),
        ("GET", "/", "", 200),
        ("HEAD", "/metrics", "", 200),
        ("GET", "/metrics/x", "", 404),
        ("GET", "/secrets", "", 404),
        ("POST", "/metrics", "", 405),
    ],
)
def test_the_app_answers_where_it_is_mounted(
    method: str, path: str, root_path: str, status: int
) -> None:
    found, headers, body = get(metrics_app(gate_with_a_past()), method, path, root_path)
    assert found == status
    assert (body == b"") == (method == "HEAD")
    assert (b"allow" in headers) == (status == 405)


def test_the_app_lives_and_dies_with_its_server() -> None:
    received = iter(({"type": "lifespan.startup"}, {"type": "lifespan.shutdown"}))
    sent: list[Message] = []

    async def receive() -> Message:
        return next(received)

    async def send(message: Message) -> None:
        sent.append(message)

    asyncio.run(metrics_app(gate_with_a_past())({"type": "lifespan"}, receive, send))
    kinds = [message["type"] for message in sent]
    assert kinds == ["lifespan.startup.complete", "lifespan.shutdown.complete"]


def test_metrics_of_no_gate_are_an_error() -> None:
    with pytest.raises(TypeError, match="1 or more gates"):
        metrics_app()
    with pytest.raises(TypeError, match="1 or more gates"):
        CallgateCollector()


def test_text_of_any_length_is_told_whole() -> None:
    names = [f"{n:02}" + "x" * 500 for n in range(64)]
    gate = Gate(
        limits={name: ConcurrencyLimit(1) for name in names},
        policies={name: [(name, "shared")] for name in names},
    )
    text = gate.metrics()
    assert len(text) > 64 * 500 * 6
    assert value(parsed(text), "callgate_in_flight", limit=names[-1]) == 0


def test_a_name_with_a_nul_is_an_error() -> None:
    with pytest.raises(ConfigError, match="limits: the name 'a\\\\x00b' has a NUL character"):
        Gate(limits={"a\0b": RateLimit(1)}, policies={"p": [("a\0b", "shared")]})
