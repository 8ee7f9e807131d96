"""The acts at `/guarded/mcp`: places, the breaker, the daily quota, API keys.

The time of that server stands still until an act moves it.
"""

from __future__ import annotations

import asyncio
from typing import Any

import httpx
from guarded import (
    COOLDOWN_S,
    DAILY_TOKENS,
    EXPENSIVE_BURST,
    FAILED_ATTEMPTS,
    PLACES,
    REJECT_TRIP,
    TO_MIDNIGHT_S,
    TOKENS_PER_THOUGHT,
)
from table import TIMEOUT_S, Line
from wire import post

PATH = "/guarded/mcp"
THOUGHTS = -(-DAILY_TOKENS // TOKENS_PER_THOUGHT)
"""So many thoughts use a day's tokens up: the last one overdraws."""
AN_HOUR_S = 3_600


def open_client(url: str) -> httpx.AsyncClient:
    return httpx.AsyncClient(base_url=url, timeout=TIMEOUT_S)


async def ask(http: httpx.AsyncClient, line: Line, tool: str, user: str, calls: int = 1) -> None:
    """Calls of `user`, one after another."""
    for _ in range(calls):
        await post(http, line, tool=tool, path=PATH, key=f"key-of-{user}")


async def advance(http: httpx.AsyncClient, seconds: int) -> None:
    (await http.post(f"/guarded/advance?seconds={seconds}")).raise_for_status()


async def until(http: httpx.AsyncClient, name: str, value: int) -> None:
    """Waits for a number of the server's to become `value`."""
    while (await http.get("/stats")).json()[name] != value:
        await asyncio.sleep(0.01)


async def a_slow_tool(url: str, lines: list[Line]) -> None:
    """A slow tool takes all three places; the breaker opens, and closes half a minute later."""
    slow = Line("erin (slow tool)", "erin", {"admitted": PLACES})
    busy = Line("frank (no place)", "frank", {"concurrency": REJECT_TRIP - 1}, 1, True)
    opened = Line("  the breaker opens", "-", {"breaker_open": 3}, COOLDOWN_S, True)
    later = Line(f"  {COOLDOWN_S} s later", "-", {"admitted": 2})
    lines += [slow, busy, opened, later]
    async with open_client(url) as http:
        running = [asyncio.create_task(ask(http, slow, "slow", "erin")) for _ in range(PLACES)]
        await until(http, "waiting", PLACES)
        await ask(http, busy, "think", "frank", REJECT_TRIP - 1)
        await ask(http, opened, "think", "frank", 2)
        (await http.post("/guarded/release")).raise_for_status()
        await asyncio.gather(*running)
        # Nothing runs any more, and the breaker is open still.
        await ask(http, opened, "think", "frank")
        await advance(http, COOLDOWN_S)
        await ask(http, later, "think", "frank", 2)


async def a_daily_quota(url: str, lines: list[Line]) -> None:
    """Tokens that a tool says it has used, against a day's allowance that ends at midnight."""
    # The act before has moved the time.
    wait_s = TO_MIDNIGHT_S - COOLDOWN_S
    outcomes = {"admitted": THOUGHTS, "quota": 2}
    today = Line("gina (daily quota)", "gina", outcomes, wait_s, True)
    tomorrow = Line("  after midnight", "-", {"admitted": THOUGHTS})
    lines += [today, tomorrow]
    async with open_client(url) as http:
        await ask(http, today, "think", "gina", THOUGHTS + 2)
        await advance(http, wait_s)
        await ask(http, tomorrow, "think", "gina", THOUGHTS)


async def an_expensive_tool(url: str, lines: list[Line]) -> None:
    """One tool has a policy of its own; the others go on."""
    outcomes = {"admitted": EXPENSIVE_BURST, "rate": 3}
    search = Line("jo (expensive tool)", "jo", outcomes, AN_HOUR_S, True)
    other = Line("  another tool", "-", {"admitted": 2})
    lines += [search, other]
    async with open_client(url) as http:
        await ask(http, search, "search", "jo", EXPENSIVE_BURST + 3)
        await ask(http, other, "think", "jo", 2)


async def api_keys(url: str, lines: list[Line]) -> None:
    """A key that is missing, keys that are wrong, and one that is right in each of three places."""
    missing = Line("no key", "-", {"401": 3})
    wrong = Line("wrong keys", "-", {"401": FAILED_ATTEMPTS, "rate": 5}, AN_HOUR_S)
    right = Line("hal (three places)", "hal", {"admitted": 3})
    lines += [missing, wrong, right]
    places: list[dict[str, Any]] = [
        {"path": PATH, "token": "key-of-hal"},
        {"path": PATH, "key": "key-of-hal"},
        {"path": f"{PATH}?key=key-of-hal"},
    ]
    async with open_client(url) as http:
        for _ in range(3):
            await post(http, missing, tool="think", path=PATH)
        for n in range(FAILED_ATTEMPTS + 5):
            await post(http, wrong, tool="think", path=PATH, key=f"guess-{n}")
        for place in places:
            await post(http, right, tool="think", **place)


GUARDED_ACTS = (a_slow_tool, a_daily_quota, an_expensive_tool, api_keys)
