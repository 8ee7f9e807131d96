"""A real server, a real socket: the requests of `cases.jsonl`, and the SDK's own client.

Each line of `cases.jsonl` is a case, for every language that has an MCP layer: a `name`, the
`server` it wants (cases of one label share one), `steps`, and what must hold afterwards: `ran`, the
calls that ran by caller (`-` is whoever has no valid token), `live`, the entries in the table, and
`in_flight`, the places that are taken.

A step is sent `times` times, one after another; with `start`, nobody waits for its answer, only for
the tool to run, and a step with `finish` releases the calls and expects that of each. What `send`
may hold: one of `call` (a `tools/call` of `tool`, else of `echo`, with this id), `batch` (an array
of so many), `method` (a request), `notification`, `initialize`, `text` (the body as it is, in
`encoding`); and `token`, `key` (an API key, in `X-API-Key`), `path`, `http_method`, `headers` (null
leaves a field out), `chunk_bytes` (a chunked body), `padding_bytes` (so many more of them in the
arguments). A step may `advance_s` the time of `/guarded` instead. In `expect`: `status`, `headers`
(null means absent), `json` (a part of the body), `json_absent`, and `retry_after_s` (the bounds of
`Retry-After`). `%N%` is the number of the repetition, `%META%` the protocol's `_meta`, and
`%RETRY_AFTER%` what the response's field of that name said.
"""

from __future__ import annotations

import asyncio
import functools
import json
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import httpx2
import pytest
from harness import running_server
from mcp import Client, MCPError
from mcp.client.streamable_http import streamable_http_client

CASES = [json.loads(line) for line in Path(__file__).with_name("cases.jsonl").open()]
TIMEOUT_S = 30
VERSION = "2026-07-28"
META = {
    "io.modelcontextprotocol/protocolVersion": VERSION,
    "io.modelcontextprotocol/clientCapabilities": {},
}
CALLER_BURST = 20


@pytest.fixture(scope="module")
def servers() -> Iterator[Callable[[str], str]]:
    """The base URL of the server with a label: started when it is first asked for."""
    started: dict[str, Any] = {}

    def url(label: str) -> str:
        if label not in started:
            context = running_server()
            started[label] = (context, context.__enter__())
        return started[label][1]

    yield url
    for context, _ in started.values():
        context.__exit__(None, None, None)


def stats(url: str) -> Any:
    return httpx.get(f"{url}/stats", timeout=TIMEOUT_S).json()


# --- the cases ---------------------------------------------------------------------------------


def message_of(send: dict[str, Any]) -> tuple[Any, dict[str, str]]:
    """The JSON-RPC message that a step sends, and the header fields that name its method."""
    if "call" in send or "batch" in send:
        text = "x" * send.get("padding_bytes", 0)
        tool = send.get("tool", "echo")
        arguments = {"text": text} if tool == "echo" else {}
        params = {"name": tool, "arguments": arguments, "_meta": META}
        call = {"jsonrpc": "2.0", "id": send.get("call"), "method": "tools/call", "params": params}
        batch = [{**call, "id": n} for n in range(send.get("batch", 0))]
        return batch or call, {"mcp-method": "tools/call", "mcp-name": tool}
    if "initialize" in send:
        info = {"name": "test", "version": "1"}
        params = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": info}
        message = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params}
        return message, {"mcp-protocol-version": ""}
    method = send.get("method") or send["notification"]
    message = {"jsonrpc": "2.0", "method": method, "params": {"_meta": META}}
    return message | ({"id": 1} if "method" in send else {}), {"mcp-method": method}


def request_of(send: dict[str, Any], number: int) -> dict[str, Any]:
    headers: dict[str, str | None] = {
        "accept": "application/json, text/event-stream",
        "content-type": "application/json",
        "mcp-protocol-version": VERSION,
    }
    content = b""
    if "text" in send:
        text = send["text"].replace("%META%", json.dumps(META))
        content = text.encode(send.get("encoding", "utf-8"))
        headers |= {"mcp-method": "tools/call", "mcp-name": "echo"}
    elif "http_method" not in send:
        message, named = message_of(send)
        content = json.dumps(message).encode()
        headers |= {name: value or None for name, value in named.items()}
    if "token" in send:
        headers["authorization"] = "Bearer " + send["token"].replace("%N%", str(number))
    if "key" in send:
        headers["x-api-key"] = send["key"].replace("%N%", str(number))
    headers |= send.get("headers", {})
    size = send.get("chunk_bytes")
    chunks = (content[at : at + size] for at in range(0, len(content), size)) if size else content
    return {
        "method": send.get("http_method", "POST"),
        "url": send.get("path", "/mcp"),
        "headers": {name: value for name, value in headers.items() if value is not None},
        "content": chunks,
    }


def is_part(part: Any, whole: Any) -> bool:
    """Whether `whole` has everything that `part` has; 7 is not "7", and 1 is not true."""
    if isinstance(part, dict):
        return isinstance(whole, dict) and all(
            name in whole and is_part(value, whole[name]) for name, value in part.items()
        )
    return type(part) is type(whole) and part == whole


def check(response: httpx.Response, expect: dict[str, Any]) -> None:
    assert response.status_code == expect["status"], response.text
    retry_after = response.headers.get("retry-after", "")
    if "retry_after_s" in expect:
        least, most = expect["retry_after_s"]
        assert least <= int(retry_after) <= most
    for name, value in expect.get("headers", {}).items():
        wanted = value and value.replace("%RETRY_AFTER%", retry_after)
        assert response.headers.get(name) == wanted, name
    if "json" in expect:
        assert is_part(expect["json"], response.json()), response.text
    for name in expect.get("json_absent", ()):
        assert name not in response.json()


class Player:
    """Plays the steps of one case. Calls that were started run on in threads."""

    def __init__(self, client: httpx.Client, pool: ThreadPoolExecutor) -> None:
        self.client = client
        self.pool = pool
        self.running: list[Future[httpx.Response]] = []

    def play(self, step: dict[str, Any]) -> None:
        if "advance_s" in step:
            self.client.post(f"/guarded/advance?seconds={step['advance_s']}")
        elif "finish" in step:
            self.client.post("/guarded/release")
            for running in self.running:
                check(running.result(TIMEOUT_S), step["finish"])
            self.running.clear()
        else:
            for number in range(step.get("times", 1)):
                request = request_of(step["send"], number)
                if step.get("start"):
                    self.start(request)
                else:
                    check(self.client.request(**request), step["expect"])

    def start(self, request: dict[str, Any]) -> None:
        call = self.pool.submit(self.client.request, **request)
        self.running.append(call)
        while self.client.get("/stats").json()["waiting"] < len(self.running):
            assert not call.done(), call.result().text


@pytest.mark.parametrize("case", CASES, ids=[case["name"] for case in CASES])
def test_case(case: dict[str, Any], servers: Callable[[str], str]) -> None:
    url = servers(case["server"])
    with httpx.Client(base_url=url, timeout=TIMEOUT_S) as client, ThreadPoolExecutor() as pool:
        player = Player(client, pool)
        for step in case["steps"]:
            player.play(step)
    after = stats(url)
    for name, count in case.get("ran", {}).items():
        assert after["ran"].get(name, 0) == count, name
    for name in ("live", "in_flight"):
        if name in case:
            assert after[name] == case[name], name


# --- the SDK's own client ----------------------------------------------------------------------


def asynchronous(test: Callable[..., Awaitable[None]]) -> Callable[..., None]:
    @functools.wraps(test)
    def run(*args: Any, **kwargs: Any) -> None:
        asyncio.run(asyncio.wait_for(test(*args, **kwargs), TIMEOUT_S))

    return run


@asynccontextmanager
async def sdk_client(url: str, token: str, mode: str, path: str = "/mcp"):
    headers = {"authorization": f"Bearer {token}"}
    async with httpx2.AsyncClient(headers=headers, timeout=TIMEOUT_S) as http:
        transport = streamable_http_client(f"{url}{path}", http_client=http)
        async with Client(transport, mode=mode) as client:
            yield client


@pytest.mark.parametrize("path", ["/mcp", "/private/mcp"])
@pytest.mark.parametrize("mode", ["auto", "legacy"])
@asynchronous
async def test_the_sdk_client_sees_the_refusal_with_reason_and_wait(
    servers: Callable[[str], str], mode: str, path: str
) -> None:
    url, name = servers("callers"), f"sdk-{mode}{path.replace('/', '-')}"
    async with sdk_client(url, f"valid-{name}", mode, path) as client:
        for number in range(CALLER_BURST):
            result = await client.call_tool("echo", {"text": str(number)})
            assert result.structured_content == {"result": str(number)}
        with pytest.raises(MCPError) as refused:
            await client.call_tool("echo", {"text": "one more"})
        assert refused.value.code == -31004
        assert refused.value.data["reason"] == "rate"
        assert 3_540_000 < refused.value.data["retryAfterMs"] <= 3_600_000
        assert {tool.name for tool in (await client.list_tools()).tools} == {"echo", "wait"}
    assert stats(url)["ran"][name] == CALLER_BURST


@asynchronous
async def test_a_session_opens_lists_and_closes_on_a_drained_bucket(
    servers: Callable[[str], str],
) -> None:
    url, token = servers("callers"), "valid-session"
    async with sdk_client(url, token, "legacy") as client:
        for _ in range(CALLER_BURST):
            await client.call_tool("echo", {"text": ""})
    # A new session: initialize, notifications/initialized, the GET stream, and DELETE at its end.
    async with sdk_client(url, token, "legacy") as client:
        assert len((await client.list_tools()).tools) == 2
        with pytest.raises(MCPError) as refused:
            await client.call_tool("echo", {"text": ""})
        assert refused.value.code == -31004


@asynchronous
async def test_a_flood_neither_refuses_nor_delays_the_calls_of_another(
    servers: Callable[[str], str],
) -> None:
    url = servers("callers")
    async with httpx.AsyncClient(base_url=url, timeout=TIMEOUT_S) as flood:
        request = request_of({"call": 1, "token": "valid-flooding"}, 0)
        calls = [asyncio.create_task(flood.request(**request)) for _ in range(200)]
        async with sdk_client(url, "valid-steady", "auto") as client:
            for _ in range(CALLER_BURST):
                assert not (await client.call_tool("echo", {"text": ""})).is_error
        statuses = [response.status_code for response in await asyncio.gather(*calls)]
    assert sorted(statuses) == [200] * CALLER_BURST + [429] * (200 - CALLER_BURST)
    ran = stats(url)["ran"]
    assert (ran["flooding"], ran["steady"]) == (CALLER_BURST, CALLER_BURST)


@asynchronous
async def test_a_client_that_leaves_has_paid_and_the_server_lives_on(
    servers: Callable[[str], str],
) -> None:
    url, token = servers("callers"), "valid-leaving"
    request = request_of({"call": 1, "token": token}, 0)
    request["content"] = request["content"].replace(b'"name": "echo"', b'"name": "wait"')
    request["headers"]["mcp-name"] = "wait"
    async with httpx.AsyncClient(base_url=url, timeout=TIMEOUT_S) as client:
        leaving = asyncio.create_task(client.request(**request))
        while not (await client.get("/stats")).json()["ran"].get("leaving"):
            assert not leaving.done()
        leaving.cancel()
        with pytest.raises(asyncio.CancelledError):
            await leaving
    async with sdk_client(url, token, "auto") as client:
        for _ in range(CALLER_BURST - 1):
            await client.call_tool("echo", {"text": ""})
        with pytest.raises(MCPError):
            await client.call_tool("echo", {"text": ""})
    assert stats(url)["ran"]["leaving"] == CALLER_BURST


def test_the_gate_never_tells_who_its_callers_are(servers: Callable[[str], str]) -> None:
    url = servers("callers")
    httpx.Client(base_url=url).request(**request_of({"call": 1, "token": "valid-secret-name"}, 0))
    decisions = stats(url)["decisions"]
    assert decisions
    assert "secret-name" not in json.dumps(decisions)
