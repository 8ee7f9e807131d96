"""The ASGI middleware, driven directly: how calls end, and what its own failures do."""

from __future__ import annotations

import asyncio
import json
import re
import time
from collections.abc import Callable
from contextlib import nullcontext, suppress
from typing import Any

import pytest

from callgate import ConfigError, Gate, Quota, Seeder
from callgate.mcp import ASGIMiddleware, Observation
from mcp_asgi_support import JSON, App, Connection, metered, request, respond
from mcp_support import (
    BrokenGate,
    Clock,
    SettlementGate,
    asynchronous,
    call_message,
    charged,
    drain,
    make_gate,
)

HTTP = {"type": "http", "method": "POST", "path": "/mcp", "headers": [JSON]}


async def until(holds: Callable[[], Any]) -> None:
    while not holds():
        await asyncio.sleep(0.001)


# --- how a call ends ---------------------------------------------------------------------------


async def settle_with(answer: Callable[..., Any], *, leave: bool = False) -> list[str]:
    gate = SettlementGate(make_gate())
    middleware, _, _, _ = metered(App(answer), gate)
    connection = Connection(json.dumps(call_message()).encode())
    if leave:
        connection.gone.set()
    with suppress(RuntimeError, OSError):
        await middleware(dict(HTTP), connection.receive, connection.send)
    return gate.outcomes


@pytest.mark.parametrize(
    ("status", "outcome"),
    [(200, "success"), (202, "success"), (400, "success"), (500, "failure"), (503, "failure")],
)
@asynchronous
async def test_a_call_that_is_answered_is_settled_by_its_status(status: int, outcome: str) -> None:
    async def answer(_receive: Any, send: Any) -> None:
        await respond(send, status)

    assert await settle_with(answer) == [outcome]


@asynchronous
async def test_an_exception_is_a_failure_and_goes_on() -> None:
    async def answer(_receive: Any, _send: Any) -> None:
        raise RuntimeError("broken")

    assert await settle_with(answer) == ["failure"]
    middleware, _, _, _ = metered(App(answer))
    with pytest.raises(RuntimeError, match="broken"):
        await request(middleware, call_message())


@asynchronous
async def test_a_response_that_never_starts_is_a_failure() -> None:
    async def answer(_receive: Any, _send: Any) -> None:
        return None

    assert await settle_with(answer) == ["failure"]


@asynchronous
async def test_a_stream_that_breaks_off_is_a_failure() -> None:
    async def answer(_receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"part", "more_body": True})

    assert await settle_with(answer) == ["failure"]


@asynchronous
async def test_a_client_that_leaves_before_the_answer_has_abandoned_the_call() -> None:
    async def answer(receive: Any, _send: Any) -> None:
        assert (await receive())["type"] == "http.disconnect"

    assert await settle_with(answer, leave=True) == ["abandoned"]


@asynchronous
async def test_a_send_that_finds_the_client_gone_has_abandoned_the_call() -> None:
    async def answer(_receive: Any, send: Any) -> None:
        await respond(send, 200)

    assert await settle_with(answer, leave=True) == ["abandoned"]


@asynchronous
async def test_an_exception_after_the_client_has_left_is_an_abandoned_call() -> None:
    async def answer(receive: Any, _send: Any) -> None:
        await receive()
        raise RuntimeError("nobody is there")

    assert await settle_with(answer, leave=True) == ["abandoned"]


@asynchronous
async def test_an_oserror_of_the_tool_is_a_failure() -> None:
    async def answer(_receive: Any, _send: Any) -> None:
        raise FileNotFoundError("no such tool data")

    assert await settle_with(answer) == ["failure"]


@asynchronous
async def test_a_disconnect_after_the_whole_answer_is_a_success() -> None:
    async def answer(receive: Any, send: Any) -> None:
        await respond(send, 200)
        connection.gone.set()
        await receive()

    gate = SettlementGate(make_gate())
    middleware, _, _, _ = metered(App(answer), gate)
    connection = Connection(json.dumps(call_message()).encode())
    await middleware(dict(HTTP), connection.receive, connection.send)
    assert gate.outcomes == ["success"]


@asynchronous
async def test_a_client_that_leaves_has_abandoned_its_call_though_the_application_never_asks() -> (
    None
):
    may_end = asyncio.Event()

    async def answer(_receive: Any, send: Any) -> None:
        await may_end.wait()
        with suppress(OSError):
            await respond(send, 200)

    gate = SettlementGate(make_gate())
    middleware, app, _, clock = metered(App(answer), gate)
    connection = Connection(json.dumps(call_message()).encode())
    call = asyncio.create_task(middleware(dict(HTTP), connection.receive, connection.send))
    await until(lambda: app.bodies)
    await asyncio.sleep(0.01)
    assert gate.outcomes == []
    connection.gone.set()
    await until(lambda: gate.outcomes)
    assert (call.done(), gate.outcomes, charged(gate, clock)) == (False, ["abandoned"], 1)
    may_end.set()
    await call
    assert gate.outcomes == ["abandoned"]


@asynchronous
async def test_what_runs_on_after_the_whole_answer_holds_its_call_without_its_client() -> None:
    may_end = asyncio.Event()

    async def answer(_receive: Any, send: Any) -> None:
        await respond(send, 200)
        connection.gone.set()
        await may_end.wait()

    gate = SettlementGate(make_gate())
    middleware, _, _, _ = metered(App(answer), gate)
    connection = Connection(json.dumps(call_message()).encode())
    call = asyncio.create_task(middleware(dict(HTTP), connection.receive, connection.send))
    await until(connection.gone.is_set)
    await asyncio.sleep(0.01)
    assert gate.outcomes == []
    may_end.set()
    await call
    assert gate.outcomes == ["success"]


@asynchronous
async def test_everybody_in_the_application_who_asks_is_told_that_the_client_has_left() -> None:
    told = []

    async def answer(receive: Any, _send: Any) -> None:
        asking = [asyncio.create_task(receive()) for _ in range(2)]
        await asyncio.sleep(0.01)
        connection.gone.set()
        told.extend([*await asyncio.gather(*asking), await receive()])

    middleware, _, _, _ = metered(App(answer))
    connection = Connection(json.dumps(call_message()).encode())
    await middleware(dict(HTTP), connection.receive, connection.send)
    assert told == [{"type": "http.disconnect"}] * 3


@asynchronous
async def test_what_the_server_says_after_the_body_is_the_applications() -> None:
    more = [{"type": "http.request", "body": b"%d" % n, "more_body": False} for n in range(3)]
    said: list[Any] = [*more, ConnectionError("the server is broken"), {"type": "http.disconnect"}]

    async def receive() -> Any:
        message = said.pop(0)
        if isinstance(message, Exception):
            raise message
        return message

    heard: list[Any] = []

    async def answer(receive: Any, _send: Any) -> None:
        await asyncio.sleep(0.01)
        # One is read ahead, and nothing more before the application has asked for it.
        assert said[0] is more[2]
        heard.extend([await receive(), await receive()])
        with pytest.raises(ConnectionError, match="broken"):
            await receive()
        heard.append(await receive())

    gate = SettlementGate(make_gate())
    middleware, _, _, _ = metered(App(answer), gate)
    more[0]["body"] = json.dumps(call_message()).encode()
    await middleware(dict(HTTP), receive, Connection().send)
    assert heard == [*more[1:], {"type": "http.disconnect"}]
    assert gate.outcomes == ["abandoned"]


@asynchronous
async def test_an_error_of_the_server_that_is_met_ahead_is_the_applications_if_it_asks() -> None:
    async def ask(receive: Any, _send: Any) -> None:
        await asyncio.sleep(0.01)
        await receive()

    async def never_ask(_receive: Any, send: Any) -> None:
        await asyncio.sleep(0.01)
        await respond(send, 200)

    async def once() -> Any:
        yield {"type": "http.request", "body": json.dumps(call_message()).encode()}
        raise ConnectionError("the server is broken")

    for answer, outcome in ((ask, "failure"), (never_ask, "success")):
        gate = SettlementGate(make_gate())
        middleware, _, _, _ = metered(App(answer), gate)
        with suppress(ConnectionError) if answer is ask else nullcontext():
            await middleware(dict(HTTP), once().__anext__, Connection().send)
        assert gate.outcomes == [outcome]


@pytest.mark.parametrize("way_out", ["return", "raise", "cancel", "leave"])
@asynchronous
async def test_no_task_is_left_behind_and_exceptions_leave_as_they_are(way_out: str) -> None:
    error = RuntimeError("broken")
    started = asyncio.Event()

    async def answer(receive: Any, send: Any) -> None:
        started.set()
        await asyncio.sleep(0.01)
        if way_out == "raise":
            raise error
        if way_out == "cancel":
            await asyncio.Event().wait()
        if way_out == "leave":
            connection.gone.set()
            await receive()
            raise error
        await respond(send, 200)

    middleware, _, _, _ = metered(App(answer))
    connection = Connection(json.dumps(call_message()).encode())
    before = asyncio.all_tasks()
    call = asyncio.create_task(middleware(dict(HTTP), connection.receive, connection.send))
    await started.wait()
    if way_out == "cancel":
        call.cancel()
    [raised] = await asyncio.gather(call, return_exceptions=True)
    assert asyncio.all_tasks() == before
    if way_out == "return":
        assert raised is None
    elif way_out == "cancel":
        assert type(raised) is asyncio.CancelledError
    else:
        assert raised is error


def test_in_an_event_loop_of_another_kind_calls_run_all_the_same() -> None:
    gate = SettlementGate(make_gate())
    middleware, _, _, _ = metered(gate=gate)
    connection = Connection(json.dumps(call_message()).encode())
    with pytest.raises(StopIteration):
        middleware(dict(HTTP), connection.receive, connection.send).send(None)
    assert (connection.status, gate.outcomes) == (200, ["success"])


def test_a_call_that_is_closed_with_its_event_loop_is_abandoned() -> None:
    async def answer(_receive: Any, _send: Any) -> None:
        await asyncio.Event().wait()

    gate = SettlementGate(make_gate())
    middleware, app, _, _ = metered(App(answer), gate)
    connection = Connection(json.dumps(call_message()).encode())
    call = middleware(dict(HTTP), connection.receive, connection.send)
    loop = asyncio.new_event_loop()
    task = loop.create_task(call)
    loop.run_until_complete(until(lambda: app.bodies))
    pending = asyncio.all_tasks(loop) - {task}
    loop.close()
    call.close()
    assert gate.outcomes == ["abandoned"]
    for left in (task, *pending):
        left._log_destroy_pending = False  # type: ignore[attr-defined]


@asynchronous
async def test_a_cancelled_request_has_abandoned_its_call_and_stays_charged() -> None:
    started = asyncio.Event()

    async def answer(_receive: Any, _send: Any) -> None:
        started.set()
        await asyncio.Event().wait()

    gate = SettlementGate(make_gate())
    middleware, _, _, clock = metered(App(answer), gate)
    task = asyncio.create_task(request(middleware, call_message()))
    await started.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert gate.outcomes == ["abandoned"]
    assert charged(gate, clock) == 1


@asynchronous
async def test_a_refused_call_leaves_nothing_to_settle() -> None:
    gate = SettlementGate(make_gate())
    middleware, _, _, clock = metered(App(), gate)
    drain(gate, clock)
    await request(middleware, call_message())
    assert gate.outcomes == []


# --- when the limiter itself fails -------------------------------------------------------------


@asynchronous
async def test_an_internal_error_admits_and_is_counted() -> None:
    middleware, app, _, _ = metered(gate=BrokenGate(make_gate()))
    for n in range(3):
        assert (await request(middleware, call_message())).status == 200
        assert middleware.internal_errors == n + 1
    assert len(app.bodies) == 3


@asynchronous
async def test_an_internal_error_refuses_where_that_is_configured() -> None:
    middleware, app, _, _ = metered(gate=BrokenGate(make_gate()), on_error="refuse")
    connection = await request(middleware, call_message(request_id=9))
    assert connection.status == 503
    assert connection.json["id"] == 9
    assert connection.json["error"]["code"] == -32603
    assert app.bodies == []
    assert middleware.internal_errors == 1


@asynchronous
async def test_an_internal_error_is_logged_once_in_a_while_without_identities(
    caplog: pytest.LogCaptureFixture,
) -> None:
    middleware, _, _, _ = metered(gate=BrokenGate(make_gate()))
    for _ in range(5):
        await request(middleware, call_message())
    assert len(caplog.records) == 1
    assert "ZeroDivisionError" in caplog.text
    assert "1001" not in caplog.text


@asynchronous
async def test_a_caller_function_that_fails_is_an_internal_error() -> None:
    def caller(_scope: Any) -> str:
        raise KeyError("user")

    middleware, app, _, _ = metered(caller=caller)
    assert (await request(middleware, call_message())).status == 200
    assert middleware.internal_errors == 1
    middleware, app, _, _ = metered(caller=caller, on_error="refuse")
    assert (await request(middleware, call_message())).status == 503
    assert app.bodies == []


@asynchronous
async def test_a_settlement_that_fails_does_not_reach_the_client() -> None:
    class Unsettling(SettlementGate):
        def settle(self, *_args: Any, **_options: Any) -> str:
            raise ZeroDivisionError

    middleware, _, _, _ = metered(gate=Unsettling(make_gate()))
    assert (await request(middleware, call_message())).status == 200
    assert middleware.internal_errors == 1


@asynchronous
async def test_an_observer_that_fails_changes_nothing() -> None:
    def observe(_observation: Observation) -> None:
        raise ZeroDivisionError

    middleware, _, gate, clock = metered(observe=observe)
    assert (await request(middleware, call_message())).status == 200
    assert (middleware.internal_errors, charged(gate, clock)) == (1, 1)


@asynchronous
async def test_each_decision_is_observed_once() -> None:
    seen: list[Observation] = []
    middleware, _, _, _ = metered(observe=seen.append)
    await request(middleware, [call_message()] * 2)
    await request(middleware, [call_message()] * 2)
    await request(middleware, {"jsonrpc": "2.0", "id": 1, "method": "ping"})
    assert [(o.policy, o.cost, o.decision.admitted) for o in seen] == [
        ("anonymous", 2, True),
        ("anonymous", 2, False),
    ]
    assert all(o.gate_ns > 0 and o.source["path"] == "/mcp" for o in seen)


@asynchronous
async def test_two_middlewares_on_one_gate_charge_once_and_on_two_gates_each() -> None:
    clock, gate, other = Clock(), make_gate(), make_gate()
    inner, app, _, _ = metered(gate=gate, clock=clock)
    await request(ASGIMiddleware(inner, gate, clock=clock), call_message())
    assert charged(gate, clock) == 1
    await request(ASGIMiddleware(inner, other, clock=clock), call_message())
    assert (charged(gate, clock), charged(other, clock)) == (2, 1)
    assert len(app.bodies) == 2


def other_seeder() -> Seeder:
    gate = Gate(
        limits={"tokens": Quota(1_000, must_seed=True)},
        policies={"authenticated": [("tokens", "caller")]},
    )
    return Seeder(gate, "tokens", lambda _caller: 0)


@pytest.mark.parametrize(
    ("options", "error", "allowed"),
    [
        ({"max_body_bytes": 0}, ValueError, "at least 1"),
        ({"max_body_bytes": -1}, ValueError, "at least 1"),
        ({"max_body_bytes": 4e6}, TypeError, "an int"),
        ({"error_code": None}, TypeError, "an int"),
        ({"error_code": "busy"}, TypeError, "an int"),
        ({"on_error": "ignore"}, ValueError, "'admit' or 'refuse'"),
        ({"reserve": 100.0}, TypeError, "an int"),
        ({"reserve": True}, TypeError, "an int"),
        ({"reserve": None}, TypeError, "an int"),
        ({"reserve": -1}, ConfigError, "0 to 2^64-1"),
        ({"reserve": 2**64}, ConfigError, "0 to 2^64-1"),
        ({"caller": "x-user"}, TypeError, "a function"),
        ({"observe": 5}, TypeError, "a function"),
        ({"usage_meta": 5}, TypeError, "a str"),
        ({"tools": ["search"]}, TypeError, "a mapping"),
        ({"tools": {7: "authenticated"}}, TypeError, "a str"),
        ({"methods": "tasks/get"}, TypeError, "a mapping"),
        ({"seeder": 5}, TypeError, "a Seeder"),
        ({"seeder": other_seeder()}, ConfigError, "the same gate"),
        ({"clock": 5}, TypeError, "a function"),
        ({"clock": time.monotonic}, TypeError, "an int of nanoseconds"),
        ({"clock": lambda: True}, TypeError, "an int of nanoseconds"),
        ({"clock": lambda: 2**61}, ConfigError, "0 to 2^61-1"),
        ({"clock": lambda: -1}, ConfigError, "0 to 2^61-1"),
        ({"wall_clock": 5}, TypeError, "a function"),
        ({"wall_clock": time.time}, TypeError, "an int of nanoseconds"),
        ({"wall_clock": lambda: 2**64}, ConfigError, "0 to 2^64-1"),
    ],
)
def test_bad_options_are_refused_at_start(
    options: dict[str, Any], error: type[Exception], allowed: str
) -> None:
    (name,) = options
    with pytest.raises(error, match=rf"{name}\b.* must be .*{re.escape(allowed)}"):
        metered(**options)
