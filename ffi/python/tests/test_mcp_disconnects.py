"""Clients that are killed in the middle of streamed calls, by the hundred: no place is left taken.

Real sockets, a real HTTP server, and real MCP servers behind it. `KILLED` is what the tests do by
default; CALLGATE_KILLED=10000 does more.
"""

from __future__ import annotations

import asyncio
import functools
import json
import os
import socket
import struct
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import uvicorn
from fastmcp import Context as FastMCPContext
from fastmcp import FastMCP
from mcp.server.mcpserver import Context, MCPServer

from callgate import ConcurrencyLimit, Gate
from callgate.mcp import ASGIMiddleware, FastMCPMiddleware, SDKMiddleware, protect
from mcp_support import META, MODERN_VERSION, call_message

KILLED = int(os.environ.get("CALLGATE_KILLED", "300"))
AT_ONCE = 40
STEPS = 400
"""How often a streamed call says something before it ends by itself, every `STEP_S`."""
STEP_S = 0.005
GRACE_S = 20
OK = b"HTTP/1.1 200"


def guarded_gate() -> Gate:
    rules = [("server", "shared")]
    return Gate(
        limits={"server": ConcurrencyLimit(4_000)},
        policies={"anonymous": rules, "authenticated": rules},
        capacity=100,
    )


async def plain_app(scope: Any, receive: Any, send: Any) -> None:
    """Streams without ever asking whether anybody is there."""
    await receive()
    await send({"type": "http.response.start", "status": 200, "headers": []})
    for _ in range(STEPS):
        await send({"type": "http.response.body", "body": b"data\n", "more_body": True})
        await asyncio.sleep(STEP_S)
    await send({"type": "http.response.body", "body": b""})


def mcp_app(gate: Gate, stateless: bool) -> Any:
    server = MCPServer("test", log_level="CRITICAL", middleware=[SDKMiddleware(gate)])

    @server.tool()
    async def work(ctx: Context) -> str:
        for step in range(STEPS):
            await ctx.report_progress(step)
            await asyncio.sleep(STEP_S)
        return "done"

    return protect(server.streamable_http_app(stateless_http=stateless), gate)


def fastmcp_app(gate: Gate) -> Any:
    server: FastMCP[Any] = FastMCP("test", middleware=[FastMCPMiddleware(gate)])

    @server.tool
    async def work(ctx: FastMCPContext) -> str:
        for step in range(STEPS):
            await ctx.report_progress(step)
            await asyncio.sleep(STEP_S)
        return "done"

    return protect(server.http_app(path="/mcp", stateless_http=True), gate)


APPS = {
    "plain": lambda gate: ASGIMiddleware(plain_app, gate),
    "mcp": functools.partial(mcp_app, stateless=True),
    "fastmcp": fastmcp_app,
}


@asynccontextmanager
async def served(app: Any) -> AsyncIterator[int]:
    """The port of `app`, served by uvicorn on this event loop."""
    with socket.socket(proto=socket.IPPROTO_TCP) as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(1_000)
        lifespan = "off" if isinstance(app, ASGIMiddleware) else "on"
        config = uvicorn.Config(app, log_level="critical", lifespan=lifespan)
        server = uvicorn.Server(config)
        serving = asyncio.create_task(server.serve(sockets=[listener]))
        while not server.started:
            assert not serving.done()
            await asyncio.sleep(0.01)
        try:
            yield listener.getsockname()[1]
        finally:
            server.should_exit = True
            await serving


def request_bytes(era: str) -> bytes:
    meta = {"progressToken": 1, **(META if era == "modern" else {})}
    body = json.dumps(call_message(_meta=meta)).encode()
    lines = [
        "POST /mcp HTTP/1.1",
        "host: 127.0.0.1:8000",
        "accept: application/json, text/event-stream",
        "content-type: application/json",
        f"content-length: {len(body)}",
    ]
    if era == "modern":
        lines += [f"mcp-protocol-version: {MODERN_VERSION}", "mcp-method: tools/call"]
        lines += ["mcp-name: work"]
    return "\r\n".join([*lines, "", ""]).encode() + body


async def killed_call(port: int, request: bytes, number: int) -> bytes:
    """One call whose client goes away: at five different moments, politely or with a reset."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    read = b""
    moment = number % 5
    writer.write(request if moment else request[: len(request) // 2])
    await writer.drain()
    if moment >= 2:
        read = await reader.readexactly(len(OK))
    if moment >= 3:
        await reader.read(4_096)
    if moment == 4:
        await asyncio.sleep(STEP_S * (number % 7))
    if number % 2:
        linger = struct.pack("ii", 1, 0)
        writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
    writer.transport.abort() if number % 3 else writer.close()
    return read


async def kill_clients(name: str, era: str) -> tuple[Gate, int]:
    """The gate afterwards, and the most that were in flight at any time."""
    gate = guarded_gate()
    most = 0
    async with served(APPS[name](gate)) as port:
        request = request_bytes(era)
        for start in range(0, KILLED, AT_ONCE):
            numbers = range(start, min(start + AT_ONCE, KILLED))
            calls = [killed_call(port, request, number) for number in numbers]
            answers = await asyncio.gather(*calls)
            assert set(answers) <= {b"", OK}
            most = max(most, gate.guards("server").in_flight)
        deadline_s = time.monotonic() + GRACE_S
        while gate.guards("server").in_flight and time.monotonic() < deadline_s:
            await asyncio.sleep(0.01)
        return gate, most


@pytest.mark.parametrize("era", ["handshake", "modern"])
@pytest.mark.parametrize("name", APPS)
def test_killing_clients_in_the_middle_of_streams_leaves_nothing_in_flight(
    name: str, era: str
) -> None:
    gate, most = asyncio.run(kill_clients(name, era))
    guards = gate.guards("server")
    assert guards.in_flight == 0
    assert guards.lapsed == 0
    assert most > 0
    admitted = gate.stats().decisions["anonymous", None, None]
    assert admitted >= KILLED * 3 // 5
