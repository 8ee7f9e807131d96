"""The requests of `cases.jsonl`, each against every server. README.md says what a case may hold."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from conftest import Urls
from requests_of_cases import check, request_of
from servers import SERVERS, Server

CASES = [json.loads(line) for line in Path(__file__).with_name("cases.jsonl").open()]
TIMEOUT_S = 60
REFUSALS = frozenset({429, 503})


class Player:
    """Plays the steps of one case. Calls that were started run on meanwhile."""

    def __init__(self, client: httpx.AsyncClient, server: Server) -> None:
        self.client = client
        self.server = server
        self.running: list[asyncio.Task[httpx.Response]] = []

    async def play(self, step: dict[str, Any]) -> None:
        if "advance_s" in step:
            await self.post(f"/guarded/advance?seconds={step['advance_s']}")
        elif "until" in step:
            await self.until(lambda stats: all(stats[k] == v for k, v in step["until"].items()))
        elif "abort" in step:
            await self.abort()
        elif "release" in step:
            await self.post("/guarded/release")
        elif "finish" in step:
            await self.finish(step["finish"])
        elif step.get("start"):
            for number in range(step.get("times", 1)):
                await self.start(step["send"], number)
        else:
            for number in range(step.get("times", 1)):
                response = await self.client.request(
                    **request_of(step["send"], self.server, number)
                )
                check(response, step["expect"], self.server)

    async def stats(self) -> Any:
        return (await self.client.get("/stats")).json()

    async def post(self, url: str) -> None:
        (await self.client.post(url)).raise_for_status()

    async def until(self, is_so: Callable[[Any], bool]) -> None:
        while not is_so(await self.stats()):
            for call in self.running:
                assert not call.done(), call.result().text

    async def start(self, send: dict[str, Any], number: int) -> None:
        """Goes on when the tool runs."""
        caller = (send.get("key") or send["token"]).partition("-")[2].removeprefix("of-")
        before = (await self.stats())["ran"].get(caller, 0)
        request = request_of(send, self.server, number)
        self.running.append(asyncio.create_task(self.client.request(**request)))
        await self.until(lambda stats: stats["ran"].get(caller, 0) > before)

    async def finish(self, expect: dict[str, Any]) -> None:
        await self.until(lambda stats: stats["waiting"] == len(self.running))
        await self.post("/guarded/release")
        for call in self.running:
            check(await call, expect, self.server)
        self.running.clear()

    async def abort(self) -> None:
        for call in self.running:
            call.cancel()
        ended = await asyncio.gather(*self.running, return_exceptions=True)
        assert all(isinstance(end, asyncio.CancelledError) for end in ended), ended
        self.running.clear()


async def play(case: dict[str, Any], url: str, server: Server) -> None:
    async with httpx.AsyncClient(base_url=url, timeout=TIMEOUT_S) as client:
        player = Player(client, server)
        for step in case["steps"]:
            await player.play(step)
        after = await player.stats()
    for name, count in (case.get("ran", {}) | case.get("ran_of", {}).get(server.name, {})).items():
        assert after["ran"].get(name, 0) == count, name
    for name in ("live", "in_flight"):
        if name in case:
            assert after[name] == case[name], name


@pytest.mark.parametrize("case", CASES, ids=[case["name"] for case in CASES])
def test_case(case: dict[str, Any], server: Server, urls: Urls) -> None:
    asyncio.run(asyncio.wait_for(play(case, urls(case["server"]), server), TIMEOUT_S))


# --- the cases themselves ----------------------------------------------------------------------


def expectations(case: dict[str, Any]) -> Iterator[dict[str, Any]]:
    for step in case["steps"]:
        for name in ("expect", "finish"):
            if name in step:
                yield step[name]


@pytest.mark.parametrize("case", CASES, ids=[case["name"] for case in CASES])
def test_only_what_an_sdk_answers_differs_by_server(case: dict[str, Any]) -> None:
    for expect in expectations(case):
        own = expect.get("status_of", {})
        assert own.keys() <= SERVERS.keys()
        if own:
            assert not REFUSALS & {expect["status"], *own.values()}
            assert expect.keys() == {"status", "status_of"}
    assert case.get("ran_of", {}).keys() <= SERVERS.keys()


def test_a_case_is_known_by_its_name() -> None:
    assert len({case["name"] for case in CASES}) == len(CASES)
