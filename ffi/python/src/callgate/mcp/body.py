"""Reads a request body once, within a bound, and plays it back to the application."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from callgate.mcp.asgi_types import Message, Receive

Headers = Iterable[tuple[bytes, bytes]]


_MAX_LENGTH_DIGITS: Final = 18


class BodyTooLarge(Exception):
    """The body is, or says it is, larger than the bound."""


class ClientGone(Exception):
    """The client disconnected before its request was complete."""


async def read_body(receive: Receive, headers: Headers, max_bytes: int) -> bytes:
    """The whole body, however it is chunked; never holds more than `max_bytes` and one chunk."""
    declared = header(headers, b"content-length")
    if declared is not None and declared.isdigit() and _exceeds(declared, max_bytes):
        raise BodyTooLarge
    body = bytearray()
    while True:
        message = await receive()
        if message["type"] != "http.request":
            raise ClientGone
        chunk = message.get("body", b"")
        if len(body) + len(chunk) > max_bytes:
            raise BodyTooLarge
        body += chunk
        if not message.get("more_body", False):
            return bytes(body)


def _exceeds(digits: bytes, bound: int) -> bool:
    # Their number is looked at first: Python refuses to convert thousands of digits.
    return len(digits) > _MAX_LENGTH_DIGITS or int(digits) > bound


def header(headers: Headers, name: bytes) -> bytes | None:
    """The first field of that (lower-case) name."""
    return next((value for key, value in headers if key.lower() == name), None)


def may_be_json(headers: Headers) -> bool:
    """Whether any MCP server would read this request's body as JSON, going by its content type.

    Looser than each of the SDKs' own predicates (one wants a value that begins with
    `application/json`, the other a list item that equals it, and both look at the first field
    only), so that no spelling is JSON to a server and something else here.
    """
    return any(
        item.strip().lower().startswith(b"application/json")
        for key, value in headers
        if key.lower() == b"content-type"
        for item in value.split(b",")
    )


def is_encoded(headers: Headers) -> bool:
    """Whether the body comes compressed, or in any other content coding."""
    return any(
        value.strip().lower() not in (b"", b"identity")
        for key, value in headers
        if key.lower() == b"content-encoding"
    )


class Replay:
    """A `receive` that hands out the body already read, then whatever the server says next.

    `client_gone` becomes true when the application has been told of a disconnect.
    """

    def __init__(self, body: bytes, receive: Receive) -> None:
        self._body: bytes | None = body
        self._receive = receive
        self.client_gone = False

    async def __call__(self) -> Message:
        if self._body is not None:
            body, self._body = self._body, None
            return {"type": "http.request", "body": body, "more_body": False}
        message = await self._receive()
        if message["type"] == "http.disconnect":
            self.client_gone = True
        return message
