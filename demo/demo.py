"""A real MCP server behind callgate, and everybody who calls it: `make demo`.

Starts the server of `tests/e2e/python/server.py`, drives it with the SDK's own client and with raw HTTP,
prints who was admitted, who was refused and why, and what the gate added to each call. Ends with
status 1 where a line is not what DESIGN.md says.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import httpx2
from mcp import Client, MCPError
from mcp.client.streamable_http import streamable_http_client

E2E = Path(__file__).resolve().parents[1] / "tests" / "e2e"
sys.path[:0] = [str(E2E), str(E2E / "python")]

from guarded_acts import GUARDED_ACTS
from harness import running_server
from server import ANONYMOUS_BURST, CALLER_BURST, FORWARDED_BURST
from servers import SERVERS
from table import TIMEOUT_S, Line, report, say
from wire import post

FLOOD = 1_200
FLOOD_CONNECTIONS = 16
ROTATING = 200
AN_HOUR_S = 3_600
"""The server's limits give back one call in that time: no count depends on how fast it is made."""


@asynccontextmanager
async def sdk_client(url: str, token: str | None) -> AsyncIterator[Client]:
    headers = {"authorization": f"Bearer {token}"} if token else {}
    async with httpx2.AsyncClient(headers=headers, timeout=TIMEOUT_S) as http:
        transport = streamable_http_client(f"{url}/mcp", http_client=http)
        async with Client(transport) as client:
            yield client


async def call_with_sdk(url: str, line: Line, token: str | None, calls: int) -> None:
    """The SDK's own client: some calls one after another."""
    async with sdk_client(url, token) as client:
        for _ in range(calls):
            try:
                await client.call_tool("echo", {"text": "hello"})
            except MCPError as error:
                data = error.data or {}
                line.count(data.get("reason", str(error.code)), 1, data["retryAfterMs"] / 1_000)
            else:
                line.count("admitted")


# --- the acts ----------------------------------------------------------------------------------


async def polite_callers(url: str, lines: list[Line]) -> None:
    """Two callers with tokens of their own, at once."""
    ann = Line("ann (SDK client)", "ann", {"admitted": CALLER_BURST})
    extra = 3
    ben = Line("ben (SDK client)", "ben", {"admitted": CALLER_BURST, "rate": extra}, AN_HOUR_S)
    lines += [ann, ben]
    await asyncio.gather(
        call_with_sdk(url, ann, "valid-ann", CALLER_BURST),
        call_with_sdk(url, ben, "valid-ben", CALLER_BURST + extra),
    )


async def a_flood(url: str, lines: list[Line]) -> None:
    """One caller floods; another, at the same time, must not notice."""
    outcomes = {"admitted": CALLER_BURST, "rate": FLOOD - CALLER_BURST}
    flood = Line("mallory (floods)", "mallory", outcomes, AN_HOUR_S)
    quiet = Line("carol (meanwhile)", "carol", {"admitted": CALLER_BURST})
    lines += [flood, quiet]
    limits = httpx.Limits(max_connections=FLOOD_CONNECTIONS)
    async with httpx.AsyncClient(base_url=url, timeout=TIMEOUT_S, limits=limits) as http:

        async def one_connection() -> None:
            for _ in range(FLOOD // FLOOD_CONNECTIONS):
                await post(http, flood, token="valid-mallory")

        await asyncio.gather(
            *(one_connection() for _ in range(FLOOD_CONNECTIONS)),
            call_with_sdk(url, quiet, "valid-carol", CALLER_BURST),
        )


async def anonymous_callers(url: str, lines: list[Line]) -> None:
    """Callers without a token share one allowance, by name."""
    line = Line("anonymous", "anonymous", {"admitted": ANONYMOUS_BURST, "rate": 5}, AN_HOUR_S)
    lines.append(line)
    await call_with_sdk(url, line, None, ANONYMOUS_BURST + 5)


async def a_batch(url: str, lines: list[Line]) -> None:
    """A batch costs one for each call in it, and is refused whole."""
    # Five are left when the second batch of 15 comes: it waits for ten more.
    outcomes = {"admitted": 20, "rate": 15, "never": 25}
    line = Line("dave (batches)", "dave", outcomes, 10 * AN_HOUR_S)
    lines.append(line)
    async with httpx.AsyncClient(base_url=url, timeout=TIMEOUT_S) as http:
        await post(http, line, token="valid-dave", batch=15)
        await post(http, line, token="valid-dave", batch=15)
        await post(http, line, token="valid-dave", batch=25)
        for _ in range(5):
            await post(http, line, token="valid-dave")


async def rotating_bearers(url: str, lines: list[Line]) -> None:
    """Invalid bearers, each used once: one shared allowance, or a 401 where tokens are required."""
    outcomes = {"admitted": FORWARDED_BURST, "rate": ROTATING - FORWARDED_BURST}
    public = Line("rotating bearers", "forwarded-bearer", outcomes, AN_HOUR_S)
    private = Line("  the same, /private", "-", {"401": ROTATING})
    lines += [public, private]
    async with httpx.AsyncClient(base_url=url, timeout=TIMEOUT_S) as http:
        for n in range(ROTATING):
            await post(http, public, token=f"invalid-{n}")
        for n in range(ROTATING):
            await post(http, private, token=f"invalid-again-{n}", path="/private/mcp")


ACTS = (polite_callers, a_flood, anonymous_callers, a_batch, rotating_bearers)


async def discovery(url: str) -> bool:
    """Only tool calls are metered: the flooder's bucket is empty, and it may still look around."""
    async with sdk_client(url, "valid-mallory") as client:
        tools = (await client.list_tools()).tools
    say(f"    tools/list through a drained bucket: {', '.join(tool.name for tool in tools)}")
    return len(tools) == 2


# --- the sum ------------------------------------------------------------------------------------


def totals_are_right(lines: list[Line], stats: dict[str, Any]) -> bool:
    """What the server ran, and the entries in its table, against what the table above says."""
    admitted = sum(line.outcomes["admitted"] for line in lines)
    ran, batched = sum(stats["ran"].values()), 15
    # One bucket for each of the five callers with a token and each invalid bearer that the shared
    # allowance admitted, and the two shared allowances themselves.
    buckets = 5 + FORWARDED_BURST + 2
    say(
        f"\nadmitted {admitted}, run by the server {ran}, in batches that the SDK turned away "
        f"{batched}; buckets in the table {stats['live']}, where {buckets} are due; "
        f"in flight {stats['in_flight']}"
    )
    is_table_right = stats["live"] == buckets and stats["in_flight"] == 0
    return admitted == ran + batched and is_table_right


async def play(url: str) -> bool:
    lines: list[Line] = []
    acts = (*ACTS, *GUARDED_ACTS)
    for number, act in enumerate(acts, start=1):
        say(f"[{number}/{len(acts) + 1}] {act.__doc__}")
        await act(url, lines)
    say(f"[{len(acts) + 1}/{len(acts) + 1}] {discovery.__doc__}")
    is_open = await discovery(url)
    async with httpx.AsyncClient(base_url=url, timeout=TIMEOUT_S) as http:
        stats = (await http.get("/stats")).json()
    report(lines, stats)
    return all([totals_are_right(lines, stats), is_open, *(line.is_right for line in lines)])


def main() -> int:
    started_s = time.monotonic()
    say("starting an MCP server behind callgate …")
    with running_server(SERVERS["python"].command) as url:
        say(f"    it listens on {url}/mcp")
        is_right = asyncio.run(asyncio.wait_for(play(url), TIMEOUT_S))
    verdict = "every line is what DESIGN.md says" if is_right else "NOT what DESIGN.md says"
    say(f"{verdict} ({time.monotonic() - started_s:.1f} s)")
    return 0 if is_right else 1


if __name__ == "__main__":
    sys.exit(main())
