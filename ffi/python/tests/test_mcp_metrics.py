"""What the middlewares add to a gate's metrics."""

from __future__ import annotations

from typing import Any

from prometheus_client.openmetrics.parser import text_string_to_metric_families

from callgate.mcp import APIKeyMiddleware, APIKeys
from callgate.metrics import metrics_app
from mcp_asgi_support import JSON, Connection, metered, request
from mcp_support import BrokenGate, asynchronous, call_message, make_gate


def samples(text: str) -> dict[tuple[str, ...], float]:
    return {
        (sample.name, *sample.labels.values()): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


@asynchronous
async def test_internal_errors_of_all_middlewares_on_a_gate_are_counted() -> None:
    gate = make_gate()
    for _ in range(2):
        middleware, _, _, _ = metered(gate=BrokenGate(gate))
        await request(middleware, call_message())
        assert middleware.internal_errors == 1
    assert samples(gate.metrics())["callgate_internal_errors_total",] == 2


@asynchronous
async def test_decisions_are_counted_by_policy_and_no_label_holds_an_identity() -> None:
    gate = make_gate(burst=2)
    middleware, _, _, _ = metered(gate=gate)
    guard: Any = APIKeyMiddleware(middleware, APIKeys({"k-1": "somebody-by-name"}))
    for _ in range(3):
        await request(guard, call_message("a-tool"), JSON, (b"x-api-key", b"k-1"))
    connection = Connection()
    scope = {"type": "http", "method": "GET", "path": "/metrics", "headers": []}
    await metrics_app(gate)(scope, connection.receive, connection.send)
    assert connection.status == 200
    text = connection.sent[1]["body"].decode()
    found = samples(text)
    assert found["callgate_decisions_total", "authenticated", "", "admitted"] == 2
    assert found["callgate_decisions_total", "authenticated", "caller", "rate"] == 1
    for secret in ("somebody-by-name", "a-tool", "k-1"):
        assert secret not in text
