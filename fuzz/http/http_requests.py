#!/usr/bin/env python3
"""Arbitrary HTTP requests to real MCP servers behind the middleware: what runs was charged.

    python http_requests.py [corpus] [-libFuzzer_options]

Each input becomes headers, a body and its chunks. The body is arbitrary bytes, or a tool call (or a
batch of them) that was edited here and there. It goes through `ASGIMiddleware` to the servers of both
SDKs, in both eras of the protocol, which note what runs. Then it must hold that

- no more ran than the gate was charged for;
- nothing ran where the answer was 400, 413 or 415;
- on a drained gate, nothing runs at all;
- the middleware itself has not failed;
- whoever of the SDKs' two readers of JSON can read the body finds no more tool calls in it than were
  counted, or the body is refused.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import re
import sys
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import atheris

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "ffi/python/tests"))

READERS = ["mcp.server.streamable_http", "mcp.server._streamable_http_modern", "mcp.shared", "mcp_types"]

with atheris.instrument_imports(include=["callgate.mcp", *READERS]):
    # Before anybody else imports them, so that they are instrumented too.
    import mcp.server._streamable_http_modern
    import mcp.server.streamable_http  # noqa: F401
    from callgate import Gate, RateLimit
    from callgate.mcp import asgi
    from callgate.mcp import ASGIMiddleware
    from callgate.mcp.message import UnreadableMessage, parse, tool_calls

    from mcp_support import (
        MODERN_VERSION,
        SERVERS,
        Clock,
        Served,
        call_message,
        charged,
        drain,
        serve,
    )

import pydantic_core  # noqa: E402

TIMEOUT_S = 60
SETTLING_TURNS = 30

NAMES = [
    b"content-type", b"Content-Type", b"accept", b"content-encoding", b"content-length",
    b"transfer-encoding", b"mcp-protocol-version", b"mcp-method", b"mcp-name", b"mcp-session-id",
    b"authorization", b"x-api-key", b"host", b"origin", b"cookie",
]  # fmt: skip
VALUES = [
    b"application/json", b"application/json;", b"application/json; charset=utf-16", b"text/plain",
    b"APPLICATION/JSON", b" application/json ", b"application/jsonrequest", b"*/*", b"",
    b"text/plain, application/json", b"application/json, text/event-stream", b"gzip", b"identity",
    b"chunked", b"0", b"10", b"99999999999999999999", b"tools/call", b"tools/list", b"work", b"other",
    b"Bearer abc", MODERN_VERSION.encode(), b"2025-06-18", b"2025-03-26", b"1999-01-01",
]  # fmt: skip
TOKENS = [
    b'"method"', b'"tools/call"', b'"tools\\/call"', b'"\\u006dethod"', b'"Method"', b'"ping"',
    b'"method":"tools/call"', b'"method":"ping"', b',"method":"tools/call"', b'"jsonrpc":"2.0"',
    b'"id":1', b'"id":null', b'"id":"a"', b'"id":1.5', b'"id":true', b'"params"', b'"params":{}',
    b'"params":[]', b'"name":"work"', b'"name":"other"', b'"arguments":{}', b'"_meta":{}', b'"result":{}',
    b'"error":{}', b"{", b"}", b"[", b"]", b",", b":", b'"', b"\\", b"\\u0000", b"\\ud800", b"\x00", b" ",
    b"\t", b"\r\n", b"NaN", b"Infinity", b"1e999", b"-0", b"null", b"true", b"\xef\xbb\xbf", b"\xff\xfe",
    b"\xed\xa0\x80", b"[" * 150, b"]" * 150, b"9" * 5000, b"[" * 2000,
]  # fmt: skip

PARTS = re.compile(rb'"(?:[^"\\]|\\.)*"|[^"]')
"""Strings, and the bytes between them."""


class Behind:
    """One server with the middleware in front of it, on a gate with room or on a drained one."""

    def __init__(self, is_drained: bool) -> None:
        self.clock = Clock()
        # Whoever calls, one bucket pays.
        policy = [("all", "shared")]
        self.gate = Gate(
            limits={"all": RateLimit(1, per="1ms", burst=1 if is_drained else 100_000)},
            policies={"anonymous": policy, "authenticated": policy},
            capacity=10,
        )
        if is_drained:
            drain(self.gate, self.clock)
        self.middleware: Any = None
        self.served: Served | None = None

    def wrap(self, app: Any) -> Any:
        self.middleware = ASGIMiddleware(app, self.gate, clock=self.clock)
        return self.middleware

    @property
    def ran(self) -> int:
        """How many calls have run so far."""
        assert self.served is not None
        return len(self.served.ran)

    async def send(self, headers: list[tuple[bytes, bytes]], chunks: list[bytes]) -> int:
        """The status of the answer, once all that the request set off is over."""
        status, waiting, is_over = 0, list(chunks), asyncio.Event()

        async def receive() -> Any:
            if waiting:
                body = waiting.pop(0)
                return {"type": "http.request", "body": body, "more_body": bool(waiting)}
            await is_over.wait()
            return {"type": "http.disconnect"}

        async def answer(message: Any) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            elif not message.get("more_body", False):
                is_over.set()

        scope = {
            "type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "method": "POST",
            "scheme": "http", "path": "/mcp", "raw_path": b"/mcp", "query_string": b"", "root_path": "",
            "headers": headers, "client": ("127.0.0.1", 1), "server": ("127.0.0.1", 8000), "state": {},
        }  # fmt: skip
        # What the servers do with requests that no HTTP server hands on is their own affair.
        try:
            await asyncio.wait_for(self.middleware(scope, receive, answer), TIMEOUT_S)
        except (UnicodeDecodeError, ValueError, KeyError, RuntimeError):
            pass
        # A message that is answered 202 is handled after that.
        for _ in range(SETTLING_TURNS):
            await asyncio.sleep(0)
        return status


def headers_from(data: atheris.FuzzedDataProvider, served: Served) -> list[tuple[bytes, bytes]]:
    headers = [(name.encode(), value.encode()) for name, value in served.headers.items()]
    headers.append((b"host", b"127.0.0.1:8000"))
    for _ in range(data.ConsumeIntInRange(0, 4)):
        name = data.PickValueInList(NAMES)
        if data.ConsumeBool():
            headers = [item for item in headers if item[0] != name.lower()]
        if data.ConsumeIntInRange(0, 7):
            is_odd = data.ConsumeIntInRange(0, 7) == 0
            value = data.ConsumeBytes(12) if is_odd else data.PickValueInList(VALUES)
            headers.append((name.lower(), value))
    return headers


def body_from(data: atheris.FuzzedDataProvider, served: Served) -> bytes:
    shape = data.ConsumeIntInRange(0, 7)
    if shape == 0:
        return data.ConsumeBytes(data.remaining_bytes())
    message = call_message(**served.params)
    whole: Any = message
    if shape == 1:
        whole = [message] * data.ConsumeIntInRange(0, 3)
    elif shape == 2:
        whole = [{"jsonrpc": "2.0", "id": 2, "method": "ping"}, message]
    parts = PARTS.findall(json.dumps(whole).encode())
    for _ in range(data.ConsumeIntInRange(0, 6)):
        at = data.ConsumeIntInRange(0, len(parts))
        gone = data.ConsumeIntInRange(0, 2)
        put = data.PickValueInList(TOKENS) if data.ConsumeIntInRange(0, 3) else data.ConsumeBytes(2)
        parts[at : at + gone] = [put]
    text = b"".join(parts)
    encoding = data.ConsumeIntInRange(0, 15)
    if encoding < 3:
        codec = ("utf-16", "utf-16-le", "utf-32")[encoding]
        return text.decode("utf-8", "replace").encode(codec, "replace")
    return text


def chunks_from(data: atheris.FuzzedDataProvider, body: bytes) -> list[bytes]:
    cuts = sorted(data.ConsumeIntInRange(0, len(body)) for _ in range(data.ConsumeIntInRange(0, 2)))
    edges = [0, *cuts, len(body)]
    return [body[start:end] for start, end in zip(edges, edges[1:], strict=False)]


def calls_in(value: Any) -> int:
    """Tool calls in a message or batch, as plainly as can be."""
    entries = value if isinstance(value, list) else [value]
    return sum(isinstance(e, dict) and e.get("method") == "tools/call" for e in entries)


def compare_readers(body: bytes) -> None:
    """What the SDKs' readers find in a body that is read as JSON was counted, or refused."""
    try:
        counted = tool_calls(parse(body))
    except UnreadableMessage:
        return
    cost = 0 if counted is None else counted.cost
    for read in (json.loads, pydantic_core.from_json):
        try:
            found = calls_in(read(body))
        except (ValueError, RecursionError):
            continue
        assert found <= cost, f"{read.__module__} finds {found} calls, {cost} were counted"


class Requests:
    def __init__(self, pairs: dict[str, tuple[Behind, Behind]], loop: asyncio.AbstractEventLoop) -> None:
        self.pairs = pairs
        self.loop = loop
        self.sent = self.ran = 0

    def __call__(self, raw: bytes) -> None:
        data = atheris.FuzzedDataProvider(raw)
        open_, drained = self.pairs[data.PickValueInList(list(SERVERS))]
        assert open_.served is not None
        headers = headers_from(data, open_.served)
        body = body_from(data, open_.served)
        chunks = chunks_from(data, body)
        compare_readers(body)
        self.loop.run_until_complete(self.compare(open_, drained, headers, chunks))

    async def compare(
        self, open_: Behind, drained: Behind, headers: list[tuple[bytes, bytes]], chunks: list[bytes]
    ) -> None:
        open_.clock.advance_s(100)
        ran, room = open_.ran, charged(open_.gate, open_.clock)
        status = await open_.send(headers, chunks)
        ran, cost = open_.ran - ran, charged(open_.gate, open_.clock) - room
        assert ran <= cost, f"{ran} ran, {cost} were charged: {headers} {chunks}"
        assert ran == 0 or status not in (400, 413, 415), f"{status}, but {ran} ran"
        if cost > 0:
            await drained.send(headers, chunks)
        assert drained.ran == 0, f"{drained.ran} ran on a drained gate: {headers} {chunks}"
        self.sent += 1
        self.ran += ran
        if self.sent.bit_count() == 1:  # At powers of two, as libFuzzer tells how far it is.
            print(f"{self.sent} requests, {self.ran} calls ran", file=sys.stderr)
        for behind in (open_, drained):
            assert behind.middleware.internal_errors == 0, "the middleware failed"


async def host(started: asyncio.Future[dict[str, tuple[Behind, Behind]]]) -> None:
    """Keeps all servers running, in one task for as long as the process lives."""
    async with AsyncExitStack() as stack:
        pairs = {}
        for name in SERVERS:
            pair = Behind(is_drained=False), Behind(is_drained=True)
            for behind in pair:
                behind.served = await stack.enter_async_context(serve(name, behind.wrap))
            pairs[name] = pair
        started.set_result(pairs)
        await asyncio.Event().wait()


def overlook_respelled_methods() -> None:
    """A fault that must be found: a call is only seen where its method is spelled out."""
    read = asgi.rpc.parse

    def parse_spelled_out(body: bytes) -> Any:
        return read(body) if b'"tools/call"' in body else None

    asgi.rpc.parse = parse_spelled_out  # type: ignore[assignment]


def main() -> None:
    if os.environ.get("CALLGATE_SEEDED"):
        overlook_respelled_methods()
    logging.disable(logging.CRITICAL)
    loop = asyncio.new_event_loop()
    asyncio.set_event_loop(loop)
    started: asyncio.Future[dict[str, tuple[Behind, Behind]]] = loop.create_future()
    hosting = loop.create_task(host(started))
    pairs = loop.run_until_complete(started)
    assert not hosting.done()
    atheris.Setup(sys.argv, Requests(pairs, loop))
    atheris.Fuzz()


if __name__ == "__main__":
    main()
