"""HTTP+SSE, where a POST is answered with 202 before the tool runs: the handler has the place."""

from __future__ import annotations

import asyncio
import json
from types import SimpleNamespace
from typing import Any

import pytest
from fastmcp import FastMCP
from mcp import ClientSession
from mcp.client.sse import sse_client
from mcp.server.mcpserver import MCPServer

from callgate.mcp import ASGIMiddleware, FastMCPMiddleware, SDKMiddleware, charge, protect
from mcp_asgi_support import App, Connection, request, respond
from mcp_support import Clock, asynchronous, call_message
from test_mcp_concurrency import BURST, HTTP, guarded_gate, in_flight
from test_mcp_disconnects import served


def slow_server(sdk: str, gate: Any, may_end: asyncio.Event) -> Any:
    if sdk == "mcp":
        server: Any = MCPServer("test", log_level="CRITICAL", middleware=[SDKMiddleware(gate)])
        app = server.sse_app()
    else:
        server = FastMCP("test", middleware=[FastMCPMiddleware(gate)])
        app = server.http_app(transport="sse")

    async def work() -> str:
        await may_end.wait()
        return "done"

    server.add_tool(work) if sdk == "mcp" else server.tool(work)
    return protect(app, gate)


@pytest.mark.parametrize("sdk", ["mcp", "fastmcp"])
@asynchronous
async def test_a_place_is_held_while_the_handler_runs(sdk: str) -> None:
    gate, may_end = guarded_gate(places=1), asyncio.Event()
    async with (
        served(slow_server(sdk, gate, may_end)) as port,
        sse_client(f"http://127.0.0.1:{port}/sse") as (read, write),
        ClientSession(read, write) as session,
    ):
        await session.initialize()
        for _ in range(2):
            call = asyncio.create_task(session.call_tool("work", {}))
            while not in_flight(gate):
                await asyncio.sleep(0.001)
            await asyncio.sleep(0.05)
            assert in_flight(gate) == 1
            assert gate.try_admit("anonymous").reason == "concurrency"
            may_end.set()
            assert not (await call).is_error
            while in_flight(gate):
                await asyncio.sleep(0.001)
            may_end.clear()


async def accepts(_receive: Any, send: Any) -> None:
    await respond(send, 202)


@asynchronous
async def test_a_handler_that_never_comes_keeps_no_place_for_long(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(charge, "HANDOVER_S", 0.05)
    gate, clock = guarded_gate(), Clock()
    SDKMiddleware(gate)
    guard = ASGIMiddleware(App(accepts), gate, clock=clock)
    await request(guard, call_message())
    assert in_flight(gate, clock) == 1
    await asyncio.sleep(0.1)
    assert in_flight(gate, clock) == 0


@asynchronous
async def test_the_handler_takes_the_place_over() -> None:
    gate, clock = guarded_gate(), Clock()
    inner = SDKMiddleware(gate, clock=clock)
    app = App(accepts)
    await request(ASGIMiddleware(app, gate, clock=clock), call_message())
    assert await in_flight_meanwhile(inner, app, clock) == 1
    assert in_flight(gate, clock) == 0


async def in_flight_meanwhile(inner: SDKMiddleware, app: App, clock: Clock) -> int:
    """While the handler of the request that has reached `app` runs behind `inner`."""
    seen = []

    async def call_next(_context: Any) -> None:
        seen.append(in_flight(inner.gate, clock))

    asked = SimpleNamespace(scope=app.scopes[0])
    params = json.loads(app.bodies[0])["params"]
    context: Any = SimpleNamespace(method="tools/call", request_id=1, params=params, request=asked)
    await inner(context, call_next)
    return seen[0]


@asynchronous
async def test_a_client_that_leaves_at_once_leaves_its_place_to_the_handler() -> None:
    gate, clock, taken = guarded_gate(), Clock(), []

    async def answer(_receive: Any, _send: Any) -> None:
        await asyncio.sleep(0.01)
        taken.append(in_flight(gate, clock))
        taken.append(await in_flight_meanwhile(inner, app, clock))
        taken.append(in_flight(gate, clock))
        await asyncio.Event().wait()

    inner, app = SDKMiddleware(gate, clock=clock), App(answer)
    connection = Connection(json.dumps(call_message()).encode())
    connection.gone.set()
    guard = ASGIMiddleware(app, gate, clock=clock)
    call = asyncio.create_task(guard(dict(HTTP), connection.receive, connection.send))
    while len(taken) < 3:
        await asyncio.sleep(0.001)
    assert taken == [1, 1, 0]
    call.cancel()


@asynchronous
async def test_a_handler_that_comes_too_late_is_charged_for_itself(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(charge, "HANDOVER_S", 0.01)
    gate, clock = guarded_gate(), Clock()
    inner, app = SDKMiddleware(gate, clock=clock), App(accepts)
    await request(ASGIMiddleware(app, gate, clock=clock), call_message())
    while in_flight(gate, clock):
        await asyncio.sleep(0.001)
    assert await in_flight_meanwhile(inner, app, clock) == 1
    assert gate.peek("anonymous", cost=0, now_ns=clock())[0].remaining == BURST - 2


@asynchronous
async def test_without_a_handler_to_expect_and_for_notifications_nothing_is_held() -> None:
    gate, clock = guarded_gate(), Clock()
    guard = ASGIMiddleware(App(accepts), gate, clock=clock)
    await request(guard, call_message())
    assert in_flight(gate, clock) == 0
    SDKMiddleware(gate)
    notification = call_message()
    del notification["id"]
    await request(guard, notification)
    assert in_flight(gate, clock) == 0
