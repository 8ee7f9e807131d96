"""A place is held for as long as its call runs, and given back once on every way out."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from contextlib import suppress
from types import SimpleNamespace
from typing import Any

import pytest
from mcp import MCPError

from callgate import ConcurrencyLimit, Gate, RateLimit
from callgate.mcp import ASGIMiddleware, SDKMiddleware, protect
from mcp_asgi_support import JSON, App, Connection, metered, request, respond
from mcp_support import SERVERS, Clock, asynchronous, call_message, serve
from test_mcp_sdk import SDKS, Tools, text

PLACES = 2
BURST = 100_000
HTTP = {"type": "http", "method": "POST", "path": "/mcp", "headers": [JSON]}


def guarded_gate(places: int = PLACES, reject_trip: int = 0) -> Gate:
    return Gate(
        limits={
            "shared": RateLimit(1, per="1h", burst=BURST),
            "server": ConcurrencyLimit(places, reject_trip=reject_trip, cooldown="30s"),
        },
        policies={
            "anonymous": [("shared", "shared"), ("server", "shared")],
            "authenticated": [("shared", "shared"), ("server", "shared")],
        },
        capacity=100,
    )


def in_flight(gate: Any, clock: Clock | None = None) -> int:
    return int(gate.guards("server", now_ns=None if clock is None else clock()).in_flight)


class Slow(App):
    """Answers once it is let: half of the answer, then the rest."""

    def __init__(self) -> None:
        super().__init__(self.answer)
        self.may_end = asyncio.Event()

    async def answer(self, _receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"{", "more_body": True})
        await self.may_end.wait()
        await send({"type": "http.response.body", "body": b"}"})


@asynchronous
async def test_a_place_is_held_until_the_stream_has_ended_and_nobody_queues() -> None:
    guard, app, gate, clock = metered(Slow(), guarded_gate())
    calls = []
    for _ in range(PLACES):
        connection = Connection(json.dumps(call_message()).encode())
        calls.append(asyncio.create_task(guard(dict(HTTP), connection.receive, connection.send)))
        await connection.until_sent(2)
    assert in_flight(gate, clock) == PLACES
    refused = await request(guard, call_message(request_id="x"))
    assert refused.status == 503
    assert refused.headers[b"retry-after"] == b"1"
    assert refused.json["id"] == "x"
    assert refused.json["error"]["data"] == {
        "reason": "concurrency",
        "limit": "server",
        "retryAfterMs": None,
    }
    app.may_end.set()
    await asyncio.gather(*calls)
    assert in_flight(gate, clock) == 0
    assert (await request(guard, call_message())).status == 200
    # Two and one that were let through; the one refused has paid nothing.
    assert gate.peek("anonymous", cost=0, now_ns=clock())[0].remaining == BURST - 3


@asynchronous
async def test_the_breaker_opens_and_closes_again() -> None:
    guard, app, gate, clock = metered(Slow(), guarded_gate(places=1, reject_trip=3))
    call = asyncio.create_task(request(guard, call_message()))
    while not app.bodies:
        await asyncio.sleep(0)
    refusals = [await request(guard, call_message()) for _ in range(4)]
    reasons = [refusal.json["error"]["data"]["reason"] for refusal in refusals]
    assert [refusal.status for refusal in refusals] == [503] * 4
    assert reasons == ["concurrency"] * 2 + ["breaker_open"] * 2
    assert refusals[3].headers[b"retry-after"] == b"30"
    assert refusals[3].json["error"]["data"]["retryAfterMs"] == 30_000
    app.may_end.set()
    await call
    clock.advance_s(29.9)
    assert (await request(guard, call_message())).headers[b"retry-after"] == b"1"
    clock.advance_s(0.1)
    assert (await request(guard, call_message())).status == 200
    assert in_flight(gate, clock) == 0


@asynchronous
async def test_a_batch_takes_one_place() -> None:
    guard, app, gate, clock = metered(Slow(), guarded_gate(places=1))
    call = asyncio.create_task(request(guard, [call_message()] * 7))
    while not app.bodies:
        await asyncio.sleep(0)
    assert in_flight(gate, clock) == 1
    app.may_end.set()
    await call
    assert in_flight(gate, clock) == 0


# --- ways out ----------------------------------------------------------------------------------


async def returns(_receive: Any, send: Any) -> None:
    await respond(send, 200)


async def answers_5xx(_receive: Any, send: Any) -> None:
    await respond(send, 500)


async def raises(_receive: Any, _send: Any) -> None:
    raise RuntimeError("broken")


async def raises_in_the_stream(_receive: Any, send: Any) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b"part", "more_body": True})
    raise RuntimeError("broken")


async def breaks_off(_receive: Any, send: Any) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b"part", "more_body": True})


async def never_starts(_receive: Any, _send: Any) -> None:
    return None


async def is_told_that_the_client_left(receive: Any, _send: Any) -> None:
    await receive()


async def is_cancelled(_receive: Any, _send: Any) -> None:
    raise asyncio.CancelledError


async def has_its_generator_closed(_receive: Any, _send: Any) -> None:
    raise GeneratorExit


WAYS_OUT = [
    returns,
    answers_5xx,
    raises,
    raises_in_the_stream,
    breaks_off,
    never_starts,
    is_told_that_the_client_left,
    is_cancelled,
    has_its_generator_closed,
]


@pytest.mark.parametrize("has_left", [False, True])
@pytest.mark.parametrize("way_out", WAYS_OUT, ids=lambda way: way.__name__)
@asynchronous
async def test_every_way_out_gives_the_place_back(
    way_out: Callable[..., Any], has_left: bool
) -> None:
    guard, _, gate, clock = metered(App(way_out), guarded_gate(places=1))
    for _ in range(5):
        connection = Connection(json.dumps(call_message()).encode())
        if has_left or way_out is is_told_that_the_client_left:
            connection.gone.set()
        with suppress(RuntimeError, OSError, asyncio.CancelledError, GeneratorExit):
            await guard(dict(HTTP), connection.receive, connection.send)
        assert in_flight(gate, clock) == 0


@asynchronous
async def test_a_request_that_is_never_awaited_takes_no_place() -> None:
    guard, _, gate, clock = metered(App(), guarded_gate())
    guard(dict(HTTP), Connection().receive, Connection().send).close()
    assert in_flight(gate, clock) == 0


@asynchronous
async def test_a_call_that_is_closed_in_the_middle_gives_its_place_back() -> None:
    guard, _app, gate, clock = metered(Slow(), guarded_gate())
    connection = Connection(json.dumps(call_message()).encode())
    running = guard(dict(HTTP), connection.receive, connection.send)
    running.send(None)
    assert in_flight(gate, clock) == 1
    running.close()
    assert in_flight(gate, clock) == 0


@asynchronous
async def test_an_observer_that_ends_the_program_leaves_no_place_taken() -> None:
    def observe(_observation: Any) -> None:
        raise KeyboardInterrupt

    guard, _, gate, clock = metered(App(), guarded_gate(), observe=observe)
    connection = Connection(json.dumps(call_message()).encode())
    running = guard(dict(HTTP), connection.receive, connection.send)
    with pytest.raises(KeyboardInterrupt):
        running.send(None)
    assert in_flight(gate, clock) == 0


# --- around the handler ------------------------------------------------------------------------


@pytest.mark.parametrize("sdk", SDKS)
@asynchronous
async def test_the_handlers_of_an_sdk_hold_places(sdk: str) -> None:
    gate = guarded_gate(places=1)
    tools = Tools(sdk, gate, clock=Clock())
    async with tools.client("legacy") as client:
        call = asyncio.create_task(client.call_tool("wait", {}))
        await tools.waiting.wait()
        with pytest.raises(MCPError) as refused:
            await client.call_tool("work", {})
        assert refused.value.data["reason"] == "concurrency"
        call.cancel()
        with suppress(asyncio.CancelledError):
            await call
        while in_flight(gate, tools.clock):
            await asyncio.sleep(0.001)
        assert not (await client.call_tool("work", {})).is_error
        assert (await client.call_tool("fail", {})).is_error
        with suppress(MCPError):
            await client.call_tool("unknown", {})
    assert in_flight(gate, tools.clock) == 0


@pytest.mark.parametrize("sdk", SDKS)
@asynchronous
async def test_a_busy_server_can_say_so_in_a_sentence(sdk: str) -> None:
    gate = guarded_gate(places=1)
    tools = Tools(sdk, gate, clock=Clock(), refuse_with="result")
    assert gate.try_admit("anonymous", now_ns=tools.clock()).admitted
    async with tools.client() as client:
        result = await client.call_tool("work", {})
    assert result.is_error
    assert text(result).startswith("The server is busy: it runs 1 tool calls at once")


@pytest.mark.parametrize("server", [name for name in SERVERS if name != "mcp-handshake-sse"])
@asynchronous
async def test_a_place_is_free_after_each_call_to_a_real_server(server: str) -> None:
    gate = guarded_gate(places=1)
    async with serve(server, lambda app: protect(app, gate)) as served:
        for _ in range(3):
            assert (await served.post(served.message())).status_code == 200
            assert in_flight(gate) == 0


@asynchronous
async def test_a_handler_that_outlives_its_client_keeps_the_place_until_it_ends() -> None:
    gate, clock = guarded_gate(places=1), Clock()
    inner = SDKMiddleware(gate, clock=clock)
    may_end, handlers = asyncio.Event(), []

    async def call_next(_context: Any) -> None:
        await may_end.wait()

    async def answer(_receive: Any, _send: Any) -> None:
        params = {"name": "work"}
        asked = SimpleNamespace(scope=app.scopes[-1])
        context: Any = SimpleNamespace(
            method="tools/call", request_id=1, params=params, request=asked
        )
        handlers.append(asyncio.create_task(inner(context, call_next)))
        await asyncio.sleep(0)
        raise OSError("the client has gone")

    app = App(answer)
    guard = ASGIMiddleware(app, gate, clock=clock)
    with pytest.raises(OSError, match="gone"):
        await request(guard, call_message())
    assert in_flight(gate, clock) == 1
    may_end.set()
    await handlers[0]
    assert in_flight(gate, clock) == 0
