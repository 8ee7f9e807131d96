"""The middlewares for `mcp` and `fastmcp`, on every transport, driven by the SDK's own client."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from fastmcp import Context, FastMCP
from fastmcp.exceptions import ToolError as FastMCPToolError
from mcp import Client, MCPError, StdioServerParameters
from mcp.server.lowlevel import Server
from mcp.server.mcpserver import MCPServer
from mcp.server.mcpserver.exceptions import ToolError as MCPServerToolError
from mcp_types import CallToolResult, ListToolsResult, TextContent, Tool
from pydantic import BaseModel, ValidationError

from callgate.mcp import ASGIMiddleware, FastMCPMiddleware, Observation, SDKMiddleware, protect
from mcp_support import (
    SERVERS,
    BrokenGate,
    Clock,
    SettlementGate,
    asynchronous,
    charged,
    drain,
    make_gate,
    serve,
)

SDKS = ("mcp", "fastmcp")
ERAS = ("legacy", "auto")
MIDDLEWARES: dict[str, Any] = {"mcp": SDKMiddleware, "fastmcp": FastMCPMiddleware}


class Tools:
    """A server of either SDK, its tools, and what ran."""

    def __init__(self, sdk: str, gate: Any = None, **options: Any) -> None:
        self.sdk = sdk
        self.clock = options.setdefault("clock", Clock())
        self.gate = gate or make_gate()
        self.middleware = MIDDLEWARES[sdk](self.gate, **options)
        self.ran: list[str] = []
        self.waiting = asyncio.Event()
        make: Any = MCPServer if sdk == "mcp" else FastMCP
        self.server = make("test", middleware=[self.middleware])
        for tool in (self.work, self.fail, self.wait):
            self.add(tool)

    def add(self, tool: Callable[..., Any]) -> None:
        if self.sdk == "mcp":
            self.server.add_tool(tool)
        else:
            self.server.tool(tool)

    def client(self, era: str = "auto") -> Client:
        server = self.server if self.sdk == "mcp" else self.server._mcp_server
        return Client(server, mode=era)

    def charged(self) -> int:
        return charged(self.gate, self.clock)

    def work(self) -> str:
        self.ran.append("work")
        return "done"

    def fail(self) -> str:
        self.ran.append("fail")
        raise RuntimeError("the tool is broken")

    async def wait(self) -> str:
        self.ran.append("wait")
        self.waiting.set()
        await asyncio.Event().wait()
        return "never"


def text(result: CallToolResult) -> str:
    (content,) = result.content
    assert isinstance(content, TextContent)
    return content.text


@pytest.mark.parametrize("era", ERAS)
@pytest.mark.parametrize("sdk", SDKS)
@asynchronous
async def test_a_refusal_is_a_jsonrpc_error_with_reason_limit_and_wait(sdk: str, era: str) -> None:
    tools = Tools(sdk)
    async with tools.client(era) as client:
        for _ in range(3):
            assert not (await client.call_tool("work", {})).is_error
        with pytest.raises(MCPError) as refused:
            await client.call_tool("work", {})
    assert refused.value.code == -31004
    assert refused.value.data == {
        "reason": "rate",
        "limit": "anonymous",
        "retryAfterMs": 3_600_000,
    }
    assert tools.ran == ["work"] * 3


@pytest.mark.parametrize("era", ERAS)
@pytest.mark.parametrize("sdk", SDKS)
@asynchronous
async def test_a_refusal_may_be_a_result_that_a_model_can_pass_on(sdk: str, era: str) -> None:
    tools = Tools(sdk, refuse_with="result")
    drain(tools.gate, tools.clock)
    async with tools.client(era) as client:
        result = await client.call_tool("work", {})
    assert result.is_error
    assert text(result) == (
        "Too many tool calls: the limit 'anonymous' is reached. Try again in 60 minutes."
    )
    assert tools.ran == []


@pytest.mark.parametrize("era", ERAS)
@pytest.mark.parametrize("sdk", SDKS)
@asynchronous
async def test_nothing_but_tool_calls_is_metered(sdk: str, era: str) -> None:
    tools = Tools(sdk)
    drain(tools.gate, tools.clock)
    async with tools.client(era) as client:
        assert {tool.name for tool in (await client.list_tools()).tools} == {"work", "fail", "wait"}
        assert (await client.list_prompts()).prompts == []


@pytest.mark.parametrize("refuse_with", ["error", "result"])
@pytest.mark.parametrize("sdk", SDKS)
@asynchronous
async def test_stdio_is_metered_as_anonymous(sdk: str, refuse_with: str) -> None:
    script = Path(__file__).with_name("mcp_stdio_server.py")
    server = StdioServerParameters(
        command=sys.executable,
        args=[str(script), sdk, refuse_with],
        env={"PYTHONPATH": os.pathsep.join(sys.path)},
    )
    async with Client(server) as client:
        for _ in range(2):
            assert not (await client.call_tool("work", {})).is_error
        assert len((await client.list_tools()).tools) == 1
        if refuse_with == "result":
            result = await client.call_tool("work", {})
            assert result.is_error and "'anonymous'" in text(result)
        else:
            with pytest.raises(MCPError) as refused:
                await client.call_tool("work", {})
            assert refused.value.data["limit"] == "anonymous"


@pytest.mark.parametrize("sdk", SDKS)
@asynchronous
async def test_the_error_code_is_configurable(sdk: str) -> None:
    tools = Tools(sdk, error_code=-32099)
    drain(tools.gate, tools.clock)
    async with tools.client() as client:
        with pytest.raises(MCPError) as refused:
            await client.call_tool("work", {})
    assert refused.value.code == -32099


@pytest.mark.parametrize("sdk", SDKS)
@asynchronous
async def test_a_function_names_the_caller(sdk: str) -> None:
    callers = iter(["user:1"] * 4 + ["user:2"])
    tools = Tools(sdk, caller=lambda _context: next(callers))
    async with tools.client() as client:
        for _ in range(3):
            await client.call_tool("work", {})
        with pytest.raises(MCPError):
            await client.call_tool("work", {})
        assert not (await client.call_tool("work", {})).is_error
    assert charged(tools.gate, tools.clock, "authenticated", "user:1") == 3
    assert charged(tools.gate, tools.clock, "authenticated", "user:2") == 1


@pytest.mark.parametrize("sdk", SDKS)
@asynchronous
async def test_a_call_that_returns_is_a_success_and_one_that_raises_a_failure(sdk: str) -> None:
    gate = SettlementGate(make_gate())
    tools = Tools(sdk, gate)
    async with tools.client() as client:
        await client.call_tool("work", {})
        assert (await client.call_tool("fail", {})).is_error
    assert gate.outcomes == ["success", "failure"]
    assert tools.charged() == 2


@pytest.mark.parametrize("sdk", SDKS)
@asynchronous
async def test_a_call_that_its_client_cancels_is_abandoned_and_stays_charged(sdk: str) -> None:
    gate = SettlementGate(make_gate())
    tools = Tools(sdk, gate)
    async with tools.client("legacy") as client:
        call = asyncio.create_task(client.call_tool("wait", {}))
        await tools.waiting.wait()
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        # The cancellation travels to the server as a message; any answer comes after it.
        await client.list_tools()
    assert gate.outcomes == ["abandoned"]
    assert tools.charged() == 1


@pytest.mark.parametrize("sdk", SDKS)
@asynchronous
async def test_an_internal_error_admits_and_is_counted(sdk: str) -> None:
    tools = Tools(sdk, BrokenGate(make_gate()))
    async with tools.client() as client:
        assert not (await client.call_tool("work", {})).is_error
    assert tools.middleware.internal_errors == 1


@pytest.mark.parametrize("sdk", SDKS)
@asynchronous
async def test_an_internal_error_refuses_where_that_is_configured(sdk: str) -> None:
    tools = Tools(sdk, BrokenGate(make_gate()), on_error="refuse")
    async with tools.client() as client:
        with pytest.raises(MCPError) as refused:
            await client.call_tool("work", {})
    assert refused.value.code == -32603
    assert (tools.ran, tools.middleware.internal_errors) == ([], 1)


@pytest.mark.parametrize("era", ERAS)
@pytest.mark.parametrize("sdk", SDKS)
@asynchronous
async def test_what_the_client_gets_wrong_is_charged_and_no_failure_of_the_server(
    sdk: str, era: str
) -> None:
    gate = SettlementGate(make_gate(anonymous=9))
    tools = Tools(sdk, gate)

    def strict(count: int, other: int) -> int:
        return count + other

    tools.add(strict)
    async with tools.client(era) as client:
        for arguments in ({}, {"count": "many", "other": 1}, {"count": {}, "other": []}):
            assert (await client.call_tool("strict", arguments)).is_error
        assert (await client.call_tool("no such tool", {})).is_error
        assert not (await client.call_tool("strict", {"count": 1, "other": 2})).is_error
    assert gate.outcomes == ["abandoned"] * 4 + ["success"]
    assert tools.charged() == 5


@pytest.mark.parametrize("sdk", SDKS)
@asynchronous
async def test_what_a_tool_says_itself_is_a_failure_however_it_reads(sdk: str) -> None:
    gate = SettlementGate(make_gate(anonymous=9))
    tools = Tools(sdk, gate)
    error: Any = MCPServerToolError if sdk == "mcp" else FastMCPToolError

    class Answer(BaseModel):
        words: int

    def says(message: str) -> str:
        raise error(message)

    def reads_an_answer() -> str:
        try:
            return str(Answer.model_validate({"words": "many"}))
        except ValidationError as invalid:
            raise error(str(invalid)) from invalid

    def returns_an_error() -> CallToolResult:
        said = TextContent(type="text", text="Unknown tool: of mine")
        return CallToolResult(content=[said], is_error=True)

    for tool in (says, reads_an_answer, returns_an_error):
        tools.add(tool)
    async with tools.client() as client:
        for message in ("no such file", "Unknown tool: says", "1 validation error"):
            assert (await client.call_tool("says", {"message": message})).is_error
        for name in ("reads_an_answer", "returns_an_error"):
            assert (await client.call_tool(name, {})).is_error
    assert gate.outcomes == ["failure"] * 5


@pytest.mark.parametrize("sdk", SDKS)
@asynchronous
async def test_each_decision_is_observed_once(sdk: str) -> None:
    seen: list[Observation] = []
    tools = Tools(sdk, observe=seen.append)
    async with tools.client() as client:
        for _ in range(3):
            await client.call_tool("work", {})
        with pytest.raises(MCPError):
            await client.call_tool("work", {})
    assert [o.decision.admitted for o in seen] == [True, True, True, False]
    assert all(o.gate_ns > 0 for o in seen)


@asynchronous
async def test_a_low_level_server_is_metered_too() -> None:
    gate, clock = make_gate(anonymous=1), Clock()

    async def on_call_tool(_ctx: Any, _params: Any) -> CallToolResult:
        return CallToolResult(content=[TextContent(type="text", text="done")])

    async def on_list_tools(_ctx: Any, _params: Any) -> ListToolsResult:
        return ListToolsResult(tools=[Tool(name="work", input_schema={"type": "object"})])

    server = Server("test", on_call_tool=on_call_tool, on_list_tools=on_list_tools)
    server.middleware.append(SDKMiddleware(gate, clock=clock))
    async with Client(server) as client:
        assert not (await client.call_tool("work", {})).is_error
        with pytest.raises(MCPError):
            await client.call_tool("work", {})


# --- calls within calls ------------------------------------------------------------------------


@asynchronous
async def test_calls_that_a_tool_makes_itself_are_part_of_its_own() -> None:
    tools = Tools("fastmcp")

    async def outer(ctx: Context) -> str:
        for _ in range(5):
            await ctx.fastmcp.call_tool("work", {})
        return "done"

    tools.add(outer)
    async with tools.client() as client:
        await client.call_tool("outer", {})
    assert tools.ran == ["work"] * 5
    assert tools.charged() == 1


@asynchronous
async def test_a_mounted_server_on_the_same_gate_charges_nothing_more() -> None:
    tools = Tools("fastmcp")
    parent: FastMCP[Any] = FastMCP(
        "parent", middleware=[FastMCPMiddleware(tools.gate, clock=tools.clock)]
    )
    parent.mount(tools.server, namespace="sub")
    async with Client(parent._mcp_server) as client:
        assert not (await client.call_tool("sub_work", {})).is_error
    assert (tools.ran, tools.charged()) == (["work"], 1)


@asynchronous
async def test_what_a_call_leaves_running_calls_for_its_own_account() -> None:
    tools = Tools("fastmcp")
    go_on, left = asyncio.Event(), []

    async def leave(ctx: Context) -> str:
        server = ctx.fastmcp

        async def later() -> None:
            await go_on.wait()
            await server.call_tool("work", {})

        left.append(asyncio.create_task(later()))
        return "done"

    tools.add(leave)
    async with tools.client() as client:
        await client.call_tool("leave", {})
        assert tools.charged() == 1
        go_on.set()
        await asyncio.gather(*left)
    assert (tools.ran, tools.charged()) == (["work"], 2)


# --- behind HTTP -------------------------------------------------------------------------------


@pytest.mark.parametrize("server", SERVERS)
@asynchronous
async def test_behind_the_asgi_middleware_on_one_gate_a_call_is_charged_once(server: str) -> None:
    gate, clock = make_gate(), Clock()
    middleware = MIDDLEWARES[server.partition("-")[0]](gate, clock=clock)
    async with serve(
        server, lambda app: protect(app, gate, clock=clock), middleware=[middleware]
    ) as served:
        statuses = [(await served.post(served.message())).status_code for _ in range(5)]
        assert statuses == [200, 200, 200, 429, 429]
        assert (len(served.ran), charged(gate, clock)) == (3, 3)


@pytest.mark.parametrize("server", SERVERS)
@asynchronous
async def test_behind_the_asgi_middleware_on_another_gate_it_is_charged_at_both(
    server: str,
) -> None:
    outer, inner, clock = make_gate(anonymous=9), make_gate(anonymous=2), Clock()
    middleware = MIDDLEWARES[server.partition("-")[0]](inner, clock=clock)
    async with serve(
        server, lambda app: protect(app, outer, clock=clock), middleware=[middleware]
    ) as served:
        for _ in range(4):
            await served.post(served.message())
        assert (len(served.ran), charged(outer, clock), charged(inner, clock)) == (2, 4, 2)


@pytest.mark.parametrize("server", SERVERS)
@asynchronous
async def test_over_http_alone_the_refusal_is_the_answer_to_the_request(server: str) -> None:
    gate, clock = make_gate(), Clock()
    drain(gate, clock)
    middleware = MIDDLEWARES[server.partition("-")[0]](gate, clock=clock)
    async with serve(server, lambda app: app, middleware=[middleware]) as served:
        response = await served.post(served.message(request_id="x"))
        line = next(line for line in response.text.splitlines() if '"jsonrpc"' in line)
        answer = json.loads(line.removeprefix("data: "))
        assert (answer["id"], answer["error"]["code"]) == ("x", -31004)
        assert served.ran == []


@pytest.mark.parametrize("server", SERVERS)
@asynchronous
async def test_an_unverified_bearer_is_known_on_http_behind_the_sdk_too(server: str) -> None:
    gate, clock = make_gate(burst=2, forwarded=10), Clock()
    middleware = MIDDLEWARES[server.partition("-")[0]](gate, clock=clock)
    async with serve(server, lambda app: app, middleware=[middleware]) as served:
        for _ in range(4):
            await served.post(served.message(), {"authorization": "Bearer x"})
        assert len(served.ran) == 2
        assert charged(gate, clock, "forwarded-bearer", b"\0bearer\0x") == 2
        assert charged(gate, clock, "anonymous") == 0


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"refuse_with": "text"}, ValueError),
        ({"on_error": "ignore"}, ValueError),
        ({"error_code": "busy"}, TypeError),
        ({"reserve": 1.5}, TypeError),
    ],
)
@pytest.mark.parametrize("sdk", SDKS)
def test_bad_options_are_refused_at_start(
    sdk: str, options: dict[str, Any], error: type[Exception]
) -> None:
    (name,) = options
    with pytest.raises(error, match=name):
        MIDDLEWARES[sdk](make_gate(), **options)


def test_importing_callgate_mcp_needs_neither_sdk() -> None:
    code = (
        "import sys; sys.modules.update(dict.fromkeys(['mcp', 'fastmcp', 'mcp_types', 'starlette', "
        "'pydantic', 'anyio'])); import callgate.mcp as m; m.ASGIMiddleware; m.protect"
    )
    path = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    subprocess.run([sys.executable, "-c", code], env=path, check=True, timeout=30)


def test_the_asgi_middleware_is_the_one_that_protect_uses() -> None:
    app = MCPServer("test").streamable_http_app()
    protect(app, make_gate())
    assert isinstance(app.routes[0].app, ASGIMiddleware)
