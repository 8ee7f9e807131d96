"""The official Python SDK's own client against every server."""

from __future__ import annotations

import asyncio
import functools
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import httpx
import httpx2
import pytest
from conftest import Urls
from mcp import Client, MCPError
from mcp.client.streamable_http import streamable_http_client
from requests_of_cases import request_of
from servers import Server

TIMEOUT_S = 60
CALLER_BURST = 20


def stats(url: str) -> Any:
    return httpx.get(f"{url}/stats", timeout=TIMEOUT_S).json()


def asynchronous(test: Callable[..., Awaitable[None]]) -> Callable[..., None]:
    @functools.wraps(test)
    def run(*args: Any, **kwargs: Any) -> None:
        asyncio.run(asyncio.wait_for(test(*args, **kwargs), TIMEOUT_S))

    return run


@asynccontextmanager
async def sdk_client(
    url: str, token: str, mode: str = "auto", path: str = "/mcp"
) -> AsyncIterator[Client]:
    headers = {"authorization": f"Bearer {token}"}
    async with httpx2.AsyncClient(headers=headers, timeout=TIMEOUT_S) as http:
        transport = streamable_http_client(f"{url}{path}", http_client=http)
        async with Client(transport, mode=mode) as client:
            yield client


async def echo(client: Client, text: str = "") -> str:
    result = await client.call_tool("echo", {"text": text})
    assert not result.is_error
    return str(result.content[0].text)


@pytest.mark.parametrize("path", ["/mcp", "/private/mcp"])
@pytest.mark.parametrize("mode", ["auto", "legacy"])
@asynchronous
async def test_the_sdk_client_sees_the_refusal_with_reason_and_wait(
    urls: Urls, mode: str, path: str
) -> None:
    url, name = urls("callers"), f"sdk-{mode}{path.replace('/', '-')}"
    async with sdk_client(url, f"valid-{name}", mode, path) as client:
        for number in range(CALLER_BURST):
            assert await echo(client, str(number)) == str(number)
        with pytest.raises(MCPError) as refused:
            await echo(client, "one more")
        assert refused.value.code == -31004
        assert refused.value.data["reason"] == "rate"
        assert 3_540_000 < refused.value.data["retryAfterMs"] <= 3_600_000
        assert {tool.name for tool in (await client.list_tools()).tools} == {"echo", "wait"}
    assert stats(url)["ran"][name] == CALLER_BURST


@asynchronous
async def test_a_session_opens_lists_and_closes_on_a_drained_bucket(urls: Urls) -> None:
    url, token = urls("callers"), "valid-session"
    async with sdk_client(url, token, "legacy") as client:
        for _ in range(CALLER_BURST):
            await echo(client)
    # A new session: initialize, notifications/initialized, the GET stream, and DELETE at its end.
    async with sdk_client(url, token, "legacy") as client:
        assert len((await client.list_tools()).tools) == 2
        with pytest.raises(MCPError) as refused:
            await echo(client)
        assert refused.value.code == -31004


@asynchronous
async def test_a_flood_neither_refuses_nor_delays_the_calls_of_another(
    urls: Urls, server: Server
) -> None:
    url = urls("callers")
    async with httpx.AsyncClient(base_url=url, timeout=TIMEOUT_S) as flood:
        request = request_of({"call": 1, "token": "valid-flooding"}, server)
        calls = [asyncio.create_task(flood.request(**request)) for _ in range(200)]
        async with sdk_client(url, "valid-steady") as client:
            for _ in range(CALLER_BURST):
                await echo(client)
        statuses = [response.status_code for response in await asyncio.gather(*calls)]
    assert sorted(statuses) == [200] * CALLER_BURST + [429] * (200 - CALLER_BURST)
    ran = stats(url)["ran"]
    assert (ran["flooding"], ran["steady"]) == (CALLER_BURST, CALLER_BURST)


def test_the_gate_never_tells_who_its_callers_are(urls: Urls, server: Server) -> None:
    url = urls("callers")
    request = request_of({"call": 1, "token": "valid-secret-name"}, server)
    assert httpx.Client(base_url=url).request(**request).status_code == 200
    decisions = stats(url)["decisions"]
    assert decisions
    assert "secret-name" not in json.dumps(decisions)
