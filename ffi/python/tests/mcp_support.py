"""What the tests of `callgate.mcp` share: a clock, gates, and real servers in this process."""

from __future__ import annotations

import asyncio
import functools
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import httpx
from mcp_types import CallToolResult, TextContent

from callgate import Gate, RateLimit
from callgate.mcp import report_usage

TIMEOUT_S = 30
BASE_URL = "http://127.0.0.1:8000"
MODERN_VERSION = "2026-07-28"
META = {
    "io.modelcontextprotocol/protocolVersion": MODERN_VERSION,
    "io.modelcontextprotocol/clientCapabilities": {},
}


def asynchronous(test: Callable[..., Awaitable[None]]) -> Callable[..., None]:
    """Runs an async test on an event loop of its own, and never for longer than `TIMEOUT_S`."""

    @functools.wraps(test)
    def run(*args: Any, **kwargs: Any) -> None:
        asyncio.run(asyncio.wait_for(test(*args, **kwargs), TIMEOUT_S))

    return run


@dataclass
class Clock:
    """A clock that stands still until a test moves it."""

    now_ns: int = 1_000_000_000

    def __call__(self) -> int:
        return self.now_ns

    def advance_s(self, seconds: float) -> None:
        self.now_ns += int(seconds * 1_000_000_000)


def make_gate(burst: int = 3, anonymous: int = 3, forwarded: int = 4) -> Gate:
    """One call an hour comes back, so that no test depends on how fast it runs."""
    return Gate(
        limits={
            "caller": RateLimit(1, per="1h", burst=burst),
            "anonymous": RateLimit(1, per="1h", burst=anonymous),
            "forwarded": RateLimit(1, per="1h", burst=forwarded),
        },
        policies={
            "authenticated": [("caller", "caller")],
            "anonymous": [("anonymous", "shared")],
            "forwarded-bearer": [("forwarded", "shared"), ("caller", "caller")],
        },
        capacity=1_000,
    )


class SettlementGate:
    """A gate that notes how its permits are settled, in front of a real one."""

    def __init__(self, gate: Gate) -> None:
        self._gate = gate
        self.outcomes: list[str] = []
        self.used: list[int] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._gate, name)

    def settle(self, permit: Any, outcome: str = "success", **options: Any) -> str:
        answer = self._gate.settle(permit, outcome, **options)
        self.outcomes.append(outcome)
        self.used.append(options.get("used", 0))
        return answer


class BrokenGate(SettlementGate):
    def try_admit(self, *_args: Any, **_options: Any) -> Any:
        raise ZeroDivisionError("user:1001 divided by nothing")


def charged(gate: Any, clock: Clock, policy: str = "anonymous", caller: Any = None) -> int:
    """Tokens taken so far from the first limit of a policy."""
    report = gate.peek(policy, caller, cost=0, now_ns=clock())[0]
    return report.limit - report.remaining


def drain(gate: Any, clock: Clock, policy: str = "anonymous", caller: Any = None) -> None:
    """Take all there is."""
    while gate.try_admit(policy, caller, now_ns=clock()).admitted:
        pass


def call_message(tool: str = "work", request_id: Any = 1, **params: Any) -> dict[str, Any]:
    return {
        "jsonrpc": "2.0",
        "id": request_id,
        "method": "tools/call",
        "params": {"name": tool, "arguments": {}, **params},
    }


@dataclass
class Served:
    """A real MCP server in this process, behind whatever `wrap` put in front of it."""

    name: str
    client: httpx.AsyncClient
    ran: list[str]
    headers: dict[str, str]
    params: dict[str, Any] = field(default_factory=dict)

    def message(self, tool: str = "work", request_id: Any = 1) -> dict[str, Any]:
        return call_message(tool, request_id, **self.params)

    async def post(self, content: Any, headers: dict[str, str] | None = None) -> httpx.Response:
        """POST to the server's endpoint. Bytes and chunks go as they are; anything else as JSON."""
        if not isinstance(content, bytes) and not hasattr(content, "__aiter__"):
            content = json.dumps(content).encode()
        merged = {**self.headers, **(headers or {})}
        sent = {name: value for name, value in merged.items() if value is not None}
        return await self.client.post("/mcp", content=content, headers=sent)


SERVERS = (
    "mcp-handshake",
    "mcp-handshake-sse",
    "mcp-modern",
    "fastmcp-handshake",
    "fastmcp-modern",
)
_ACCEPT = {"accept": "application/json, text/event-stream", "content-type": "application/json"}


@asynccontextmanager
async def serve(
    name: str,
    wrap: Callable[[Any], Any],
    *,
    used: int = 0,
    meta: dict[str, Any] | None = None,
    **options: Any,
) -> AsyncIterator[Served]:
    """One of `SERVERS`, stateless, with a tool `work` that notes that it ran, reports that it has
    `used` so many units, and has `meta` in its result.

    `wrap` gets the Starlette application. `options` go to the server's constructor.
    """
    ran: list[str] = []

    def work() -> CallToolResult:
        ran.append("work")
        report_usage(used)
        return CallToolResult(content=[TextContent(type="text", text="done")], _meta=meta)

    build = _mcp_app if name.startswith("mcp-") else _fastmcp_app
    app = build(work, json_response=not name.endswith("-sse"), **options)
    headers, params = dict(_ACCEPT), {}
    if name.endswith("-modern"):
        headers |= {"mcp-protocol-version": MODERN_VERSION, "mcp-method": "tools/call"}
        headers["mcp-name"] = "work"
        params = {"_meta": META}
    async with app.router.lifespan_context(app):
        transport = httpx.ASGITransport(app=wrap(app))
        async with httpx.AsyncClient(transport=transport, base_url=BASE_URL) as client:
            yield Served(name, client, ran, headers, params)


def _mcp_app(work: Callable[[], Any], json_response: bool, **options: Any) -> Any:
    from mcp.server.mcpserver import MCPServer

    server = MCPServer("test", log_level="CRITICAL", **options)
    server.add_tool(work)
    return server.streamable_http_app(stateless_http=True, json_response=json_response)


def _fastmcp_app(work: Callable[[], Any], json_response: bool, **options: Any) -> Any:
    from fastmcp import FastMCP

    server: FastMCP[Any] = FastMCP("test", **options)
    server.tool(work)
    return server.http_app(path="/mcp", stateless_http=True, json_response=json_response)
