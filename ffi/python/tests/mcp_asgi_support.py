"""An ASGI application and an ASGI client for tests, with the middleware alone between them."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any

from callgate.mcp import ASGIMiddleware
from mcp_support import Clock, make_gate

JSON = (b"content-type", b"application/json")


class App:
    """An ASGI application that notes what reaches it, and answers as it is told."""

    def __init__(self, answer: Callable[..., Any] | None = None) -> None:
        self.bodies: list[bytes] = []
        self.scopes: list[Any] = []
        self._answer = answer or ok

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        self.scopes.append(scope)
        if scope["type"] == "http":
            message = await receive()
            self.bodies.append(message.get("body", b""))
        await self._answer(receive, send)


async def ok(_receive: Any, send: Any) -> None:
    await respond(send, 200)


async def respond(send: Any, status: int) -> None:
    await send({"type": "http.response.start", "status": status, "headers": []})
    await send({"type": "http.response.body", "body": b"{}"})


class Connection:
    """A client's end of one request: chunks in, messages out, and a disconnect when asked for."""

    def __init__(self, *chunks: bytes) -> None:
        self.gone = asyncio.Event()
        self.sent: list[Any] = []
        self._chunks = list(chunks) or [b""]
        self._has_sent = asyncio.Event()

    async def receive(self) -> Any:
        if self._chunks:
            body = self._chunks.pop(0)
            return {"type": "http.request", "body": body, "more_body": bool(self._chunks)}
        await self.gone.wait()
        return {"type": "http.disconnect"}

    async def send(self, message: Any) -> None:
        if self.gone.is_set():
            raise OSError("the client has gone")
        self.sent.append(message)
        self._has_sent.set()

    async def until_sent(self, count: int) -> None:
        while len(self.sent) < count:
            self._has_sent.clear()
            await self._has_sent.wait()

    @property
    def status(self) -> int:
        return self.sent[0]["status"]

    @property
    def headers(self) -> dict[bytes, bytes]:
        return dict(self.sent[0]["headers"])

    @property
    def json(self) -> Any:
        return json.loads(b"".join(message.get("body", b"") for message in self.sent[1:]))


async def request(
    middleware: ASGIMiddleware,
    content: Any,
    *headers: tuple[bytes, bytes],
    method: str = "POST",
    **scope: Any,
) -> Connection:
    chunks = content if isinstance(content, list) and _are_bytes(content) else [content]
    connection = Connection(
        *(chunk if isinstance(chunk, bytes) else json.dumps(chunk).encode() for chunk in chunks)
    )
    full = {"type": "http", "method": method, "path": "/mcp", "headers": list(headers or [JSON])}
    await middleware({**full, **scope}, connection.receive, connection.send)
    return connection


def _are_bytes(content: list[Any]) -> bool:
    return bool(content) and all(isinstance(chunk, bytes) for chunk in content)


def metered(app: Any = None, gate: Any = None, **options: Any):
    clock = options.pop("clock", None) or Clock()
    gate = gate or make_gate()
    app = app or App()
    return ASGIMiddleware(app, gate, clock=clock, **options), app, gate, clock
