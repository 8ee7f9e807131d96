"""How many units a call has used: reported from within the tool, or stated by its result."""

from __future__ import annotations

import asyncio
import json
from types import SimpleNamespace
from typing import Any

import pytest
from mcp_types import CallToolResult, TextContent

from callgate.mcp import ASGIMiddleware, SDKMiddleware, protect, report_usage, usage
from callgate.mcp.usage import MAX_READ_BYTES, ResponseReader
from mcp_asgi_support import JSON, App, Connection, metered, request
from mcp_support import SERVERS, Clock, SettlementGate, asynchronous, call_message, make_gate, serve
from test_mcp_meter import sdk_context
from test_mcp_sdk import SDKS, Tools

KEY = "callgate/used"


def add_tools(tools: Tools) -> None:
    async def asks_a_model() -> str:
        assert report_usage(20)
        await asyncio.to_thread(report_usage, 300)
        assert usage() == 320
        return "done"

    def asks_from_a_thread() -> str:
        assert report_usage(7)
        return "done"

    def states() -> CallToolResult:
        report_usage(1)
        text = [TextContent(type="text", text="done")]
        return CallToolResult(content=text, _meta={KEY: 55})

    for tool in (asks_a_model, asks_from_a_thread, states):
        tools.add(tool)


@pytest.mark.parametrize("sdk", SDKS)
@asynchronous
async def test_a_tool_reports_what_it_used_sync_or_async(sdk: str) -> None:
    gate = SettlementGate(make_gate())
    tools = Tools(sdk, gate, reserve=100)
    add_tools(tools)
    async with tools.client() as client:
        for tool in ("asks_a_model", "asks_from_a_thread"):
            assert not (await client.call_tool(tool, {})).is_error
        # Nothing was said: the estimate stands.
        await client.call_tool("work", {})
    assert gate.used == [320, 7, 100]


@pytest.mark.parametrize("sdk", SDKS)
@asynchronous
async def test_a_result_states_what_it_used_in_place_of_the_tool(sdk: str) -> None:
    gate = SettlementGate(make_gate())
    tools = Tools(sdk, gate, usage_meta=KEY)
    add_tools(tools)
    async with tools.client() as client:
        assert not (await client.call_tool("states", {})).is_error
        await client.call_tool("asks_from_a_thread", {})
    assert gate.used == [55, 7]


@pytest.mark.parametrize("server", SERVERS)
@asynchronous
async def test_a_tool_reports_through_the_middleware_in_front_of_its_server(server: str) -> None:
    gate = SettlementGate(make_gate())
    async with serve(server, lambda app: protect(app, gate), used=41) as served:
        assert (await served.post(served.message())).status_code == 200
    assert gate.used == [41]


@pytest.mark.parametrize("server", SERVERS)
@asynchronous
async def test_the_response_is_read_for_what_its_result_states(server: str) -> None:
    gate = SettlementGate(make_gate())
    async with serve(server, lambda app: protect(app, gate, usage_meta=KEY), meta={KEY: 9}) as it:
        response = await it.post(it.message())
        assert response.status_code == 200 and KEY in response.text
    assert gate.used == [9]


def answering(*messages: Any) -> App:
    async def answer(_receive: Any, send: Any) -> None:
        headers = [(b"content-type", b"application/json")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        body = json.dumps(messages if len(messages) > 1 else messages[0]).encode()
        await send({"type": "http.response.body", "body": body[:9], "more_body": True})
        await send({"type": "http.response.body", "body": body[9:]})

    return App(answer)


def result(meta: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": 1, "result": {"content": [], "_meta": meta}}


@asynchronous
async def test_the_results_of_a_batch_add_up() -> None:
    gate = SettlementGate(make_gate())
    app = answering(result({KEY: 4}), result({}), result({KEY: 5}))
    guard, _, _, _ = metered(app, gate, usage_meta=KEY)
    await request(guard, [call_message()] * 3)
    assert gate.used == [9]


@pytest.mark.parametrize("meta", [None, [], {}, {KEY: -1}, {KEY: "9"}, {KEY: 1.5}, {KEY: True}])
@asynchronous
async def test_what_is_no_number_of_units_is_not_taken(meta: Any) -> None:
    gate = SettlementGate(make_gate())
    guard, _, _, _ = metered(answering(result(meta)), gate, usage_meta=KEY, reserve=3)
    await request(guard, call_message())
    assert gate.used == [3]


@asynchronous
async def test_more_units_than_can_be_counted_are_as_many_as_can() -> None:
    gate = SettlementGate(make_gate())
    guard, _, _, _ = metered(answering(result({KEY: 10**30})), gate, usage_meta=KEY)
    await request(guard, call_message())
    assert gate.used == [2**64 - 1]


@asynchronous
async def test_the_units_are_noted_on_every_gate_that_the_call_passed_and_once_on_each() -> None:
    async def answer(_receive: Any, send: Any) -> None:
        report_usage(5)
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"{}"})

    one, two, clock = SettlementGate(make_gate()), SettlementGate(make_gate()), Clock()
    guard, _, _, _ = metered(App(answer), one, clock=clock)
    guard = ASGIMiddleware(ASGIMiddleware(guard, one, clock=clock), two, clock=clock)  # type: ignore[arg-type]
    await request(guard, call_message())
    assert (one.used, two.used) == ([5], [5])


@asynchronous
async def test_what_a_task_reports_after_its_call_is_over_changes_nothing() -> None:
    late = asyncio.Event()

    async def report_late() -> None:
        await late.wait()
        assert not report_usage(1_000)

    tasks = []

    async def answer(_receive: Any, send: Any) -> None:
        report_usage(2)
        tasks.append(asyncio.create_task(report_late()))
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"{}"})

    gate = SettlementGate(make_gate())
    guard, _, _, _ = metered(App(answer), gate)
    await request(guard, call_message())
    late.set()
    await tasks[0]
    assert gate.used == [2]


@pytest.mark.parametrize("has_handler", [False, True])
@asynchronous
async def test_what_is_reported_after_the_client_has_gone_counts_where_a_handler_has_a_hold(
    has_handler: bool,
) -> None:
    counted = []

    async def work() -> None:
        counted.append(report_usage(1))
        connection.gone.set()
        await asyncio.sleep(0.01)
        counted.append(report_usage(400))

    async def answer(_receive: Any, _send: Any) -> None:
        if has_handler:
            asked = SimpleNamespace(scope=app.scopes[0])
            context = sdk_context(request=asked)
            return await SDKMiddleware(gate)(context, lambda _: work())  # type: ignore[arg-type]
        return await work()

    gate = SettlementGate(make_gate())
    guard, app, _, _ = metered(App(answer), gate)
    connection = Connection(json.dumps(call_message()).encode())
    scope = {"type": "http", "method": "POST", "path": "/mcp", "headers": [JSON]}
    await guard(scope, connection.receive, connection.send)
    assert counted == [True, has_handler]
    assert gate.used == [401 if has_handler else 1]


def test_outside_of_a_call_nothing_is_noted() -> None:
    assert not report_usage(1)
    assert usage() == 0


@pytest.mark.parametrize(
    ("units", "error"), [(-1, ValueError), (1.5, TypeError), (True, TypeError)]
)
def test_units_are_whole_numbers_from_zero_on(units: Any, error: type[Exception]) -> None:
    with pytest.raises(error, match="units"):
        report_usage(units)


@asynchronous
async def test_no_unit_is_lost_that_threads_report_at_once() -> None:
    async def answer(_receive: Any, send: Any) -> None:
        def report() -> None:
            for _ in range(1_000):
                report_usage(1)

        await asyncio.gather(*(asyncio.to_thread(report) for _ in range(8)))
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"{}"})

    gate = SettlementGate(make_gate())
    guard, _, _, _ = metered(App(answer), gate)
    await request(guard, call_message())
    assert gate.used == [8_000]


def test_a_response_that_is_too_large_is_passed_on_unread() -> None:
    reader = ResponseReader(KEY)
    headers = [(b"content-type", b"application/json")]
    reader.read({"type": "http.response.start", "headers": headers})
    for _ in range(3):
        chunk = b" " * (MAX_READ_BYTES // 2)
        reader.read({"type": "http.response.body", "body": chunk, "more_body": True})
    reader.read({"type": "http.response.body", "body": json.dumps(result({KEY: 9})).encode()})
    assert reader.units is None


@asynchronous
async def test_a_response_that_cannot_be_read_is_passed_on_all_the_same(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fail(*_: Any) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(ResponseReader, "read", fail)
    gate = SettlementGate(make_gate())
    guard, _, _, _ = metered(answering(result({KEY: 4})), gate, usage_meta=KEY, reserve=3)
    assert (await request(guard, call_message())).json == result({KEY: 4})
    assert (gate.used, guard.internal_errors) == ([3], 1)
