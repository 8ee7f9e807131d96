"""The ASGI middleware, driven directly: what passes, what is refused, and who is charged."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from callgate import Gate, RateLimit
from callgate.mcp import Caller
from mcp_asgi_support import JSON, App, Connection, metered, request, respond
from mcp_support import asynchronous, call_message, charged, drain, make_gate

# --- what passes -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "method",
    ["initialize", "ping", "tools/list", "prompts/get", "server/discover", "subscriptions/listen"],
)
@asynchronous
async def test_everything_but_tool_calls_passes_a_drained_gate(method: str) -> None:
    middleware, app, gate, clock = metered()
    drain(gate, clock)
    body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": method}).encode()
    connection = await request(middleware, body)
    assert connection.status == 200
    assert app.bodies == [body]


@pytest.mark.parametrize("method", ["notifications/initialized", "notifications/cancelled"])
@asynchronous
async def test_notifications_pass_a_drained_gate(method: str) -> None:
    middleware, _, gate, clock = metered()
    drain(gate, clock)
    connection = await request(middleware, {"jsonrpc": "2.0", "method": method})
    assert connection.status == 200


@pytest.mark.parametrize("http_method", ["GET", "DELETE", "HEAD", "OPTIONS", "PUT"])
@asynchronous
async def test_other_http_methods_are_handed_on_untouched(http_method: str) -> None:
    middleware, app, gate, clock = metered()
    drain(gate, clock)
    connection = await request(middleware, call_message(), method=http_method)
    assert connection.status == 200
    assert app.bodies == [json.dumps(call_message()).encode()]


@pytest.mark.parametrize("kind", ["lifespan", "websocket"])
@asynchronous
async def test_other_scopes_are_handed_on_with_their_own_channels(kind: str) -> None:
    seen: list[Any] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        seen.extend((scope, receive, send))

    middleware, _, _, _ = metered(app)
    scope = {"type": kind}
    connection = Connection()
    await middleware(scope, connection.receive, connection.send)
    assert seen == [scope, connection.receive, connection.send]


@asynchronous
async def test_an_admitted_call_reaches_the_server_byte_for_byte() -> None:
    middleware, app, gate, clock = metered()
    body = b'  {"method" : "tools/call", "id":1.50, "params":{"name":"work","x":1e2}}\n'
    connection = await request(middleware, body)
    assert connection.status == 200
    assert app.bodies == [body]
    assert charged(gate, clock) == 1


@pytest.mark.parametrize("chunk_bytes", [1, 7, 64])
@asynchronous
async def test_a_chunked_body_is_counted_and_arrives_whole(chunk_bytes: int) -> None:
    middleware, app, gate, clock = metered()
    body = json.dumps(call_message()).encode()
    chunks = [body[i : i + chunk_bytes] for i in range(0, len(body), chunk_bytes)]
    await request(middleware, [b"", *chunks, b""])
    assert app.bodies == [body]
    assert charged(gate, clock) == 1


@asynchronous
async def test_the_application_still_hears_of_a_disconnect_after_the_body() -> None:
    heard: list[str] = []

    async def answer(receive: Any, send: Any) -> None:
        await respond(send, 200)
        heard.append((await receive())["type"])

    middleware, _, _, _ = metered(App(answer))
    connection = Connection(json.dumps(call_message()).encode())
    scope = {"type": "http", "method": "POST", "path": "/mcp", "headers": [JSON]}
    task = asyncio.create_task(middleware(scope, connection.receive, connection.send))
    await connection.until_sent(2)
    connection.gone.set()
    await task
    assert heard == ["http.disconnect"]


@asynchronous
async def test_response_chunks_pass_at_once_one_by_one() -> None:
    proceed = asyncio.Event()

    async def answer(_receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"first", "more_body": True})
        await proceed.wait()
        await send({"type": "http.response.body", "body": b"last"})

    middleware, _, _, _ = metered(App(answer))
    connection = Connection(json.dumps(call_message()).encode())
    scope = {"type": "http", "method": "POST", "path": "/mcp", "headers": [JSON]}
    task = asyncio.create_task(middleware(scope, connection.receive, connection.send))
    await connection.until_sent(2)
    assert connection.sent[1]["body"] == b"first"
    assert not task.done()
    proceed.set()
    await task
    assert connection.sent[2]["body"] == b"last"


# --- what is refused ---------------------------------------------------------------------------


@asynchronous
async def test_a_drained_gate_refuses_before_the_server_sees_the_call() -> None:
    middleware, app, gate, clock = metered()
    drain(gate, clock)
    connection = await request(middleware, call_message(request_id="7"))
    assert app.bodies == []
    assert connection.status == 429
    assert connection.headers[b"retry-after"] == b"3600"
    assert connection.headers[b"ratelimit"] == b'"anonymous";r=0;t=3600'
    assert connection.headers[b"ratelimit-policy"] == b'"anonymous";q=3;w=10800'
    assert connection.json["id"] == "7"
    assert connection.json["error"]["code"] == -31004
    assert connection.json["error"]["data"] == {
        "reason": "rate",
        "limit": "anonymous",
        "retryAfterMs": 3_600_000,
    }


@asynchronous
async def test_a_call_is_admitted_at_the_very_instant_it_was_told_to_retry() -> None:
    middleware, _, gate, clock = metered()
    drain(gate, clock)
    wait_ms = (await request(middleware, call_message())).json["error"]["data"]["retryAfterMs"]
    clock.now_ns += wait_ms * 1_000_000 - 1
    assert (await request(middleware, call_message())).status == 429
    clock.now_ns += 1
    assert (await request(middleware, call_message())).status == 200


@asynchronous
async def test_a_batch_of_25_on_a_drained_bucket_is_one_429_and_runs_nothing() -> None:
    middleware, app, gate, clock = metered(gate=make_gate(anonymous=60))
    drain(gate, clock)
    connection = await request(middleware, [call_message(request_id=n) for n in range(25)])
    assert connection.status == 429
    assert len(connection.sent) == 2
    assert "id" not in connection.json
    assert connection.json["error"]["data"]["reason"] == "rate"
    assert connection.headers[b"retry-after"] == b"90000"
    assert app.bodies == []


@asynchronous
async def test_a_batch_is_charged_in_full_or_not_at_all() -> None:
    middleware, app, gate, clock = metered(gate=make_gate(anonymous=10))
    assert (await request(middleware, [call_message()] * 6)).status == 200
    assert (await request(middleware, [call_message()] * 5)).status == 429
    assert charged(gate, clock) == 6
    assert (await request(middleware, [call_message()] * 4)).status == 200
    assert charged(gate, clock) == 10
    assert len(app.bodies) == 2


@asynchronous
async def test_a_batch_above_what_the_limit_holds_is_told_that_no_retry_helps() -> None:
    middleware, app, gate, clock = metered()
    connection = await request(middleware, [call_message()] * 4)
    assert connection.status == 429
    assert b"retry-after" not in connection.headers
    assert connection.json["error"]["data"] == {
        "reason": "never",
        "limit": "anonymous",
        "retryAfterMs": None,
    }
    assert charged(gate, clock) == 0
    assert app.bodies == []


@pytest.mark.parametrize("request_id", [7, "7", 0, "", -1, 2**53 + 1])
@asynchronous
async def test_the_id_is_echoed_with_its_type(request_id: Any) -> None:
    middleware, _, gate, clock = metered()
    drain(gate, clock)
    echoed = (await request(middleware, call_message(request_id=request_id))).json["id"]
    assert echoed == request_id
    assert type(echoed) is type(request_id)


@asynchronous
async def test_a_larger_body_is_refused_with_413_and_not_read_to_its_end() -> None:
    middleware, app, gate, clock = metered(max_body_bytes=1_000)
    connection = await request(middleware, [b'{"method":"tools/call","x":"', *[b"x" * 400] * 99])
    assert connection.status == 413
    assert connection.json["error"]["code"] == -32600
    assert connection.json["id"] is None
    assert (app.bodies, charged(gate, clock)) == ([], 0)


@pytest.mark.parametrize("length", [b"1001", b"9" * 30, b"9" * 5_000])
@asynchronous
async def test_a_body_that_says_it_is_larger_is_refused_unread(length: bytes) -> None:
    middleware, app, _, _ = metered(max_body_bytes=1_000)

    async def receive() -> Any:
        raise AssertionError("the body was read")

    connection = Connection()
    headers = [JSON, (b"content-length", length)]
    scope = {"type": "http", "method": "POST", "path": "/mcp", "headers": headers}
    await middleware(scope, receive, connection.send)
    assert connection.status == 413
    assert app.bodies == []


@asynchronous
async def test_a_body_of_exactly_the_bound_passes() -> None:
    body = json.dumps(call_message()).encode()
    middleware, app, _, _ = metered(max_body_bytes=len(body))
    assert (await request(middleware, body)).status == 200
    middleware, _, _, _ = metered(max_body_bytes=len(body) - 1)
    assert (await request(middleware, body)).status == 413
    assert app.bodies == [body]


@asynchronous
async def test_a_client_that_leaves_while_sending_is_not_charged_and_gets_no_answer() -> None:
    middleware, app, gate, clock = metered()
    messages = [
        {"type": "http.request", "body": b'{"method":"tools/call"', "more_body": True},
        {"type": "http.disconnect"},
    ]

    async def receive() -> Any:
        return messages.pop(0)

    connection = Connection()
    scope = {"type": "http", "method": "POST", "path": "/mcp", "headers": [JSON]}
    await middleware(scope, receive, connection.send)
    assert (connection.sent, app.bodies, charged(gate, clock)) == ([], [], 0)


@pytest.mark.parametrize("coding", [b"gzip", b"br", b"identity, gzip", b"x-unknown"])
@asynchronous
async def test_an_encoded_body_is_refused_since_nobody_can_say_what_runs(coding: bytes) -> None:
    middleware, app, _, _ = metered()
    connection = await request(middleware, call_message(), JSON, (b"content-encoding", coding))
    assert connection.status == 415
    assert connection.headers[b"accept-encoding"] == b"identity"
    assert app.bodies == []


@asynchronous
async def test_the_identity_coding_is_none() -> None:
    middleware, app, _, _ = metered()
    headers = (JSON, (b"content-encoding", b"Identity"))
    assert (await request(middleware, call_message(), *headers)).status == 200
    assert len(app.bodies) == 1


@asynchronous
async def test_invalid_json_is_refused_as_the_sdk_refuses_it() -> None:
    middleware, app, _, _ = metered()
    connection = await request(middleware, b'{"method":"tools/call"')
    assert connection.status == 400
    assert connection.json["error"]["code"] == -32700
    assert app.bodies == []


@asynchronous
async def test_a_form_for_another_route_of_the_application_is_handed_on() -> None:
    middleware, app, gate, clock = metered()
    drain(gate, clock)
    form = b"grant_type=authorization_code&code=x"
    headers = [(b"content-type", b"application/x-www-form-urlencoded")]
    assert (await request(middleware, form, *headers)).status == 200
    assert app.bodies == [form]


# --- who is charged ----------------------------------------------------------------------------


@asynchronous
async def test_a_function_names_the_caller_and_one_caller_never_costs_another() -> None:
    middleware, _, gate, clock = metered(caller=lambda scope: scope["path"])
    for _ in range(10):
        await request(middleware, call_message(), path="/noisy")
    assert (await request(middleware, call_message(), path="/noisy")).status == 429
    assert (await request(middleware, call_message(), path="/quiet")).status == 200
    assert charged(gate, clock, "authenticated", "/noisy") == 3
    assert charged(gate, clock, "authenticated", "/quiet") == 1


@asynchronous
async def test_rotating_bearers_are_stopped_by_the_shared_allowance_and_mint_no_more() -> None:
    middleware, app, gate, clock = metered(gate=make_gate(forwarded=4))
    for n in range(100):
        await request(middleware, call_message(), JSON, (b"authorization", b"Bearer %d" % n))
    assert len(app.bodies) == 4
    # The shared allowance, and one bucket for each bearer that it admitted.
    assert gate.stats(now_ns=clock()).live == 5


@asynchronous
async def test_one_unverified_bearer_has_a_limit_of_its_own_behind_the_shared_one() -> None:
    middleware, app, gate, clock = metered(gate=make_gate(burst=3, forwarded=10))
    statuses = [
        (await request(middleware, call_message(), JSON, (b"authorization", b"Bearer x"))).status
        for _ in range(5)
    ]
    assert statuses == [200, 200, 200, 429, 429]
    # What its own bucket refused was given back to the others.
    assert charged(gate, clock, "forwarded-bearer", b"\0bearer\0x") == 3
    assert len(app.bodies) == 3


@asynchronous
async def test_an_absent_caller_is_not_pooled_with_the_others() -> None:
    middleware, _, gate, clock = metered()
    drain(gate, clock)
    assert (await request(middleware, call_message())).status == 429
    bearer = (b"authorization", b"Bearer x")
    assert (await request(middleware, call_message(), JSON, bearer)).status == 200


@asynchronous
async def test_a_caller_that_finds_no_place_is_refused_and_never_let_through_untracked() -> None:
    gate = Gate(
        limits={"caller": RateLimit(1, per="1h", burst=1)},
        policies={"authenticated": [("caller", "caller")], "anonymous": [("caller", "shared")]},
        capacity=1,
    )
    middleware, app, _, clock = metered(gate=gate, caller=lambda scope: scope["path"])
    answers = [await request(middleware, call_message(), path=f"/{n}") for n in range(200)]
    refused = [answer for answer in answers if answer.status == 429]
    assert len(app.bodies) == 200 - len(refused) == gate.stats(now_ns=clock()).live
    assert {answer.json["error"]["data"]["reason"] for answer in refused} == {"table_full"}
    assert {answer.headers[b"retry-after"] for answer in refused} == {b"3600"}
    clock.advance_s(3_600)
    assert (await request(middleware, call_message(), path="/new")).status == 200


def per_tool_gate() -> Gate:
    limit = RateLimit(1, per="1h", burst=3)
    return Gate(
        limits={"all": RateLimit(1, per="1h", burst=6), "tool": limit},
        policies={"anonymous": [("all", "shared"), ("tool", "tool")]},
        capacity=64,
    )


@asynchronous
async def test_a_limit_per_tool_is_charged_by_the_tool_that_is_called() -> None:
    options = {"gate": per_tool_gate(), "caller": lambda _: Caller("anonymous")}
    middleware, app, _, _ = metered(**options)
    for _ in range(4):
        await request(middleware, call_message("a"))
    assert len(app.bodies) == 3
    assert (await request(middleware, call_message("b"))).status == 200
    assert (await request(middleware, {**call_message(), "params": {}})).status == 200


@asynchronous
async def test_a_batch_over_several_tools_charges_each_or_none() -> None:
    options = {"gate": per_tool_gate(), "caller": lambda _: Caller("anonymous")}
    middleware, app, gate, clock = metered(**options)
    batch = [call_message("a"), call_message("b"), call_message("b"), call_message("b")]
    assert (await request(middleware, batch)).status == 200
    assert (await request(middleware, [call_message("a"), call_message("b")])).status == 429
    reports = gate.peek("anonymous", tool="a", cost=0, now_ns=clock())
    assert [report.remaining for report in reports] == [2, 2]
    assert len(app.bodies) == 1
