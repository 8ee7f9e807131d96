"""What is counted is what the server executes: every spelling of a request, on real servers.

The servers here are those of the two SDKs, in both eras of the protocol. Each request is sent
through the middleware to a gate with room, where no more may run than was charged, and to a drained
gate, where nothing may run at all.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from callgate.mcp import ASGIMiddleware, protect
from mcp_support import SERVERS, Clock, Served, asynchronous, charged, drain, make_gate, serve

Request = Callable[[Served], tuple[Any, dict[str, Any]]]


def body(served: Served) -> bytes:
    return json.dumps(served.message()).encode()


def plain(served: Served) -> tuple[Any, dict[str, Any]]:
    return body(served), {}


def with_headers(**headers: Any) -> Request:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return lambda served: (body(served), named)


def with_body(change: Callable[[bytes], Any], **headers: Any) -> Request:
    return lambda served: (change(body(served)), headers)


def with_message(change: Callable[[dict[str, Any]], Any], **headers: Any) -> Request:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return lambda served: (json.dumps(change(served.message())).encode(), named)


def replaced(old: bytes, new: bytes) -> Callable[[bytes], bytes]:
    def change(text: bytes) -> bytes:
        assert old in text
        return text.replace(old, new)

    return change


async def chunks(text: bytes, size: int) -> AsyncIterator[bytes]:
    for start in range(0, len(text), size):
        yield text[start : start + size]


METHOD = b'"method": "tools/call"'

REQUESTS: dict[str, Request] = {
    "plain": plain,
    "content type with an empty parameter": with_headers(content_type="application/json;"),
    "content type with a charset": with_headers(content_type="application/json; charset=utf-8"),
    "content type with a wrong charset": with_headers(
        content_type="application/json; charset=utf-16"
    ),
    "content type in capitals": with_headers(content_type="APPLICATION/JSON"),
    "content type with a space before": with_headers(content_type=" application/json"),
    "content type missing": with_headers(content_type=None),
    "content type empty": with_headers(content_type=""),
    "content type of plain text": with_headers(content_type="text/plain"),
    "content type of a form": with_headers(content_type="application/x-www-form-urlencoded"),
    "content type in a list, first": with_headers(content_type="application/json, text/plain"),
    "content type in a list, last": with_headers(content_type="text/plain, application/json"),
    "content type with a suffix": with_headers(content_type="application/jsonrequest"),
    "content type of a vendor": with_headers(content_type="application/vnd.api+json"),
    "accept missing": with_headers(accept=None),
    "method escaped": with_body(replaced(b"tools/call", b"tools\\u002fcall")),
    "method with an escaped slash": with_body(replaced(b"tools/call", b"tools\\/call")),
    "member name escaped": with_body(replaced(b'"method"', b'"\\u006dethod"')),
    "member name in capitals": with_body(replaced(b'"method"', b'"Method"')),
    "method respelled": with_body(replaced(b"tools/call", b"Tools/Call")),
    "method with a space": with_body(replaced(b"tools/call", b"tools/call ")),
    "method with a null": with_body(replaced(b"tools/call", b"tools/call\\u0000")),
    "method twice, the call last": with_body(replaced(METHOD, b'"method": "ping", ' + METHOD)),
    "method twice, the call first": with_body(replaced(METHOD, METHOD + b', "method": "ping"')),
    "method twice, escaped": with_body(
        replaced(METHOD, b'"method": "ping", "\\u006dethod": "tools/call"')
    ),
    "tool name twice": with_body(replaced(b'"name": "work"', b'"name": "none", "name": "work"')),
    "byte order mark": with_body(lambda text: b"\xef\xbb\xbf" + text),
    "utf-16": with_body(lambda text: text.decode().encode("utf-16")),
    "utf-16 without a mark": with_body(lambda text: text.decode().encode("utf-16-le")),
    "utf-16 and a content type in capitals": with_body(
        lambda text: text.decode().encode("utf-16"), **{"content-type": "APPLICATION/JSON"}
    ),
    "utf-16 and a content type with a suffix": with_body(
        lambda text: text.decode().encode("utf-16"), **{"content-type": "application/jsonrequest"}
    ),
    "utf-16 and no content type": with_body(
        lambda text: text.decode().encode("utf-16"), **{"content-type": None}
    ),
    "utf-32": with_body(lambda text: text.decode().encode("utf-32-be")),
    "encoded surrogate": with_body(
        replaced(b'"arguments": {', b'"\xed\xa0\x80": 1, "arguments": {')
    ),
    "escaped surrogate": with_body(replaced(b'"arguments": {', b'"x": "\\ud800", "arguments": {')),
    "not a number": with_body(replaced(b'"arguments": {', b'"x": NaN, "arguments": {')),
    "white space around": with_body(lambda text: b" \r\n\t" + text + b"\r\n "),
    "trailing text": with_body(lambda text: text + b" {}"),
    "truncated": with_body(lambda text: text[:-1]),
    "deep nesting": with_body(
        replaced(b'"arguments": {', b'"x": ' + b"[" * 5_000 + b"]" * 5_000 + b', "arguments": {')
    ),
    "large integer": with_body(
        replaced(b'"arguments": {', b'"x": ' + b"9" * 5_000 + b', "arguments": {')
    ),
    "chunked": with_body(lambda text: chunks(text, 5)),
    "compressed": with_body(gzip.compress, **{"content-encoding": "gzip"}),
    "compressed without saying so": with_body(gzip.compress),
    "said to be compressed": with_headers(content_encoding="gzip"),
    "id of a string": with_message(lambda m: {**m, "id": "1"}),
    "id of null": with_message(lambda m: {**m, "id": None}),
    "id of a fraction": with_message(lambda m: {**m, "id": 1.5}),
    "id of a boolean": with_message(lambda m: {**m, "id": True}),
    "id missing": with_message(lambda m: {k: v for k, v in m.items() if k != "id"}),
    "version missing": with_message(lambda m: {k: v for k, v in m.items() if k != "jsonrpc"}),
    "version of another kind": with_message(lambda m: {**m, "jsonrpc": "1.0"}),
    "a result beside the method": with_message(lambda m: {**m, "result": {}}),
    "a batch of one": with_message(lambda m: [m]),
    "a batch of 25": with_message(lambda m: [{**m, "id": n} for n in range(25)]),
    "a batch in a batch": with_message(lambda m: [[m]]),
    "a batch with others": with_message(lambda m: [{**m, "method": "ping"}, m]),
    "a session nobody opened": with_headers(mcp_session_id="0123456789abcdef"),
    "protocol version unknown": with_headers(mcp_protocol_version="1999-01-01"),
}


@pytest.mark.parametrize("server", SERVERS)
@pytest.mark.parametrize("name", REQUESTS)
@asynchronous
async def test_no_more_runs_than_was_charged(server: str, name: str) -> None:
    gate, clock = make_gate(anonymous=100), Clock()
    async with serve(server, lambda app: ASGIMiddleware(app, gate, clock=clock)) as served:
        content, headers = REQUESTS[name](served)
        response = await served.post(content, headers)
        assert len(served.ran) <= charged(gate, clock)
        if response.status_code in (400, 415):
            assert served.ran == []


@pytest.mark.parametrize("server", SERVERS)
@pytest.mark.parametrize("name", REQUESTS)
@asynchronous
async def test_nothing_runs_on_a_drained_gate(server: str, name: str) -> None:
    gate, clock = make_gate(anonymous=100), Clock()
    drain(gate, clock)
    async with serve(server, lambda app: ASGIMiddleware(app, gate, clock=clock)) as served:
        content, headers = REQUESTS[name](served)
        await served.post(content, headers)
        assert served.ran == []


MUST_RUN = {
    "plain",
    "content type with an empty parameter",
    "content type with a charset",
    "method escaped",
    "method with an escaped slash",
    "member name escaped",
    "not a number",
    "white space around",
    "chunked",
    "id of a string",
}


@pytest.mark.parametrize("server", SERVERS)
@pytest.mark.parametrize("name", sorted(MUST_RUN))
@asynchronous
async def test_what_the_server_takes_is_charged_once_and_runs_once(server: str, name: str) -> None:
    gate, clock = make_gate(anonymous=100), Clock()
    async with serve(server, lambda app: ASGIMiddleware(app, gate, clock=clock)) as served:
        content, headers = REQUESTS[name](served)
        response = await served.post(content, headers)
        assert response.status_code == 200
        assert (served.ran, charged(gate, clock)) == (["work"], 1)


@pytest.mark.parametrize("server", SERVERS)
@asynchronous
async def test_a_batch_of_25_on_a_drained_bucket_is_one_429(server: str) -> None:
    gate, clock = make_gate(anonymous=100), Clock()
    drain(gate, clock)
    async with serve(server, lambda app: ASGIMiddleware(app, gate, clock=clock)) as served:
        response = await served.post([served.message(request_id=n) for n in range(25)])
        assert response.status_code == 429
        assert response.json()["error"]["data"]["reason"] == "rate"
        assert int(response.headers["retry-after"]) == 25 * 3_600
        assert served.ran == []


@pytest.mark.parametrize("server", SERVERS)
@asynchronous
async def test_the_servers_do_not_execute_batches(server: str) -> None:
    """A fact about the SDKs. Should it change, what is counted is right all the same."""
    gate, clock = make_gate(anonymous=100), Clock()
    async with serve(server, lambda app: ASGIMiddleware(app, gate, clock=clock)) as served:
        response = await served.post([served.message(request_id=n) for n in range(5)])
        assert response.status_code == 400
        assert (served.ran, charged(gate, clock)) == ([], 5)


@pytest.mark.parametrize("server", SERVERS)
@pytest.mark.parametrize("method", ["tools/list", "ping", "initialize", "server/discover"])
@asynchronous
async def test_discovery_answers_through_a_drained_gate(server: str, method: str) -> None:
    gate, clock = make_gate(), Clock()
    drain(gate, clock)
    async with serve(server, lambda app: protect(app, gate, clock=clock)) as served:
        message = {"jsonrpc": "2.0", "id": 1, "method": method, "params": dict(served.params)}
        if method == "initialize":
            message["params"] = {
                "protocolVersion": "2025-11-25",
                "capabilities": {},
                "clientInfo": {"name": "test", "version": "1"},
            }
        bare = await served.post(message, {"mcp-method": method, "mcp-name": None})
        assert bare.status_code != 429
        assert "-31004" not in bare.text


@pytest.mark.parametrize("http_method", ["GET", "DELETE"])
@pytest.mark.parametrize("server", SERVERS)
@asynchronous
async def test_get_and_delete_are_answered_by_the_server_itself(
    server: str, http_method: str
) -> None:
    gate, clock = make_gate(), Clock()
    drain(gate, clock)
    async with serve(server, lambda app: protect(app, gate, clock=clock)) as served:
        headers = {"accept": "application/json", "mcp-session-id": "unknown"}
        answer = await served.client.request(http_method, "/mcp", headers=headers)
    async with serve(server, lambda app: app) as served:
        bare = await served.client.request(http_method, "/mcp", headers=headers)
    assert (answer.status_code, answer.content) == (bare.status_code, bare.content)
